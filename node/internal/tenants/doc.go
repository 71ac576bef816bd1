// Package tenants tracks which address belongs to which tenant, on this node and on the others.
//
// # Guarantees
//
// While a pod of a tenant can send from an address, or its packets may still be on their way, no node's flows take that
// address for another tenant's. Pods may start and end in any order on any nodes, addresses may be reused, daemons may
// be killed, and machines may be cut off, switched off and restarted: nothing is admitted by mistake. An address that
// is not proven is admitted nowhere. A node that is cut off from the directory therefore keeps what it knew, gets no
// new address, and delays others in only one way: it alone can say that it has released an address that another tenant
// wants.
//
// # Protocol
//
// Each node writes one Record and reads all others. No record has two writers, and no record has to agree with another.
//
//   - A node admits an address for the tenant that an active entry of some record names. An address with entries of two tenants belongs to neither. In Seen the node publishes the generations of the records that its flows implement, after the flows are in place. It stores what it publishes in Seen on disk first, so that it never goes back. Before it first uses a record, it publishes that it is about to (0).
//   - A claim is published as pending, which no node admits. Only afterwards does the node read what all others have published. The claim is granted if nobody else has the address, pending or active, and every node with a record has seen the release of any other tenant's pod with it. Of two concurrent claims at least one sees the other, because both read after they wrote. At most one is granted: that of the node whose name sorts first.
//   - A granted claim is published as active. So no node ever admits an address that is not proven.
//   - A release leaves a Released entry with its generation until every node has seen it. The node itself counts as having seen it only when no packet of the pod can be on its way (ledger.Drain). The same tenant does not have to wait: a node that still admits the address admits no other tenant.
//   - The set of all nodes is known: a new node publishes its record before it reads the others' and uses them. A node that reads after a release sees the release; a node that read before it has a record when the release is checked.
//   - A tenant with prefixes is admitted by its prefixes. A node publishes that it uses a prefix for a tenant before it reads the others' records. It uses the prefix except for parts that another record has for another tenant: an address, a prefix, or a release that not all nodes have seen. It stops publishing the use only once none of its flows and pods depends on the prefix. So of two nodes with different policies at most one acts by its own. This needs no confirmation, no publication for each pod, and a number of flows that depends only on the prefixes.
//   - Somebody who knows declares a node permanently off (by deleting the Node, or with kinds.Forget). Its record is marked as leaving, its addresses are released, and it is removed once all others have published that they no longer use it. Nodes that knew a record that was deleted by hand treat it the same way. A node that never knew it checks what others publish as seen, and waits while that names a record that it cannot find.
//   - A node whose record was removed admits nothing, starts another record and proves all its claims again.
//
// # Assumptions
//
//   - The store shows a record to every read that begins after its publication succeeded, and never shows a node an older state after a newer one. See Store.
//   - Pods can no longer send (their flows are gone) before their address is released, and a claim is granted before their flows are programmed.
//   - A node that is declared off is off. Otherwise its addresses may be given to others while its pods still send.
//   - Nodes tell the truth: an attacker who controls a node can claim any address for any tenant from then on. In Kubernetes an admission policy limits it to the record of that node.
//   - No switch or router holds a packet longer than ledger.Drain.
//
// Peerings and the grouping of namespaces are policy and need no proof: a node that is cut off uses the last ones it
// read.
package tenants
