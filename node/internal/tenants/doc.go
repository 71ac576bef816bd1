// Package tenants knows which address belongs to which tenant, on this node and on the others.
//
// # What it promises
//
// While a pod of one tenant can send from an address, or what it sent may still be on its way, no node's flows take that
// address for another tenant's. Pods may start and end in any order on any nodes, addresses be used again, daemons be
// killed, machines be cut off, switched off and come back: nothing is let in by mistake. What cannot be proven is let in
// nowhere. So cut off from the directory a node keeps what it knew, gets no new address, and holds nobody else up, but for
// the one thing that only it can say: that it has let go of an address which another tenant is to have.
//
// # How
//
// Each node writes one Record and reads all others'. Nothing is written by two, and no record has to agree with another.
//
//   - A node lets in what it has read: an address for the tenant that an active entry of some record names. An address
//     with entries of two tenants is nobody's. It says in Seen from which generations of which records its flows are made,
//     after they are in place, and keeps on disk what it says it has seen, before it says so: it never goes back. It says
//     that it is about to go by a record (0) before it first does.
//   - A claim is published as pending, which no node lets in. Only then the node reads what all others have published. It
//     is granted if nobody else has the address, pending or active, and every node that has a record says that it has
//     seen the release of any other tenant's pod from it. Of two that ask at once each sees the other, or one of them
//     does: both read after they wrote. At most one is granted, the one whose name comes first.
//   - A granted claim is published as active. So nobody ever lets in an address that is not proven.
//   - A release leaves a Released entry with its generation, until every node has seen it. The node itself says that it
//     has only when what the pod sent can no longer be on its way (ledger.Drain). The same tenant need not wait: who
//     still lets the address in lets in nobody else.
//   - "Every node" is known: a new one publishes its record before it reads the others' and goes by them. One that reads
//     the others' after a release sees the release; one that read before it has a record when the release is looked at.
//   - A tenant with prefixes is let in by them. A node publishes that it uses a prefix for a tenant before it reads the
//     others' records, and goes by it but for what another record has in it for another tenant: an address, a prefix, a
//     release that not all have seen. It stops publishing that only once no flow and no pod of it goes by the prefix. So
//     of two nodes whose policies differ at most one acts by its own. This needs no confirmation from anybody, no
//     publication for a pod, and flows in the number of prefixes.
//   - A node that is off for good is said to be by somebody who knows (deleting the Node; kinds.Forget): its record is
//     marked as leaving, its addresses are released, and it is removed once all others say that they go by nothing of it.
//     A record deleted by hand is mourned likewise by those who knew it; a node that never did asks for what others say
//     they have seen, and waits while that names a record it cannot find.
//   - A node whose record was taken away lets nothing in, starts another record and proves all it holds anew.
//
// # What it relies on
//
//   - The store shows a record to every reading that begins after its publication has succeeded, and to one node never an
//     older state after a newer one. See Store.
//   - Pods are stopped from sending (their flows are gone) before their address is released, and a claim is granted before
//     they are programmed.
//   - Whoever says that a node is off is right. The addresses of a running node that is declared off may be given to
//     others while its pods still send.
//   - Nodes tell the truth: who takes over a node can claim any address for any tenant from then on. In Kubernetes an
//     admission policy keeps it to the record of that node.
//   - No switch or router holds a packet longer than ledger.Drain.
//
// Peerings and the grouping of namespaces are policy, not proof: a node that is cut off goes by the last ones it read.
package tenants
