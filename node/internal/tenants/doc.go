// Package tenants tracks which address belongs to which tenant, on this node and on the others.
//
// # Guarantee
//
// While a pod of a tenant can send from an address, or its packets may still be on their way, no two ends of a flow take
// that address for another tenant's. Both ends of every flow enforce, so one correct end suffices: an ADD publishes its
// addresses and then reads before it lets traffic in, so of any two pods the node of the later ADD knows the other
// correctly. Nobody confirms anything in normal running. What isolates is that a claim is made before the read; that the
// members are written before it lets nodes that add pods at the same moment hear of each other.
//
// # Objects
//
// A Store holds them; see objects.go.
//
//   - A Claim for each address: only its node writes and deletes it; nobody watches it. An address has one name in the store, over all rails, so it is never given twice. It has no finalizer, which would cost a DEL a third write: it has no owner reference either, and an admission policy refuses its deletion to others.
//   - A Members object for each tenant and node, in the tenant's space: watched only by nodes with pods of the tenant or of its peers.
//   - A RailNode for each machine: read by an ADD only in the first epoch of a process and after the epoch changed.
//   - The RailEpoch: read by every ADD, written after the store was restored from a backup.
//
// The policy (Tenants and TenantPeerings) is watched by all nodes; namespaces by none.
//
// # Rules
//
//   - ADD: sync the intent to disk; create the claim; write the members; list the members of the tenant and of its peers; sync what was read before it is granted; program flows; return.
//   - Lists are linearizable: at an ADD, and before every watch (restart, reconnect, new peering). A list, and the first event of a watch, count only if the epoch is still the current one.
//   - Never backwards: no list and no event older than what this node has gone by. After a restart without the store, what the last ADD saved is the floor.
//   - DEL: remove flows; wait for two rounds of revalidation, because one in progress may have read the old tables; rewrite the members; wait Drain and for the leaf; delete the claim by UID and version.
//   - A machine that is gone keeps its addresses until its RailNode is off, or until the same machine is back with another boot ID. There is no time-out. A drained node holds nothing, so an autoscaler that drains needs nobody.
//   - A restored store: nobody can see that a silent machine's objects are older than what it holds. Whoever restores raises the epoch; machines then publish again all that they hold, and ADDs wait until every machine has done so or is off. A claim counts in the epoch that it was made in. A node that sees the store's version go back, or an epoch that ended, stops its ADDs.
//   - An address that another machine has is lost: until its flows are gone and its packets too, this machine has not published in the epoch, so nobody is granted it.
//   - A namespace is its UID: pods of a deleted namespace that still run are strangers to a new one of the same name. A peering is of the namespaces that there are when it is made: a node asks which these are after it heard of it and before it applies, and never goes back to an earlier answer.
//   - A deleted Members object closes the others to its pods until its node has written it again. An unreadable one concerns itself alone. Unknown fields are kept and ignored.
//
// A Tenant's prefixes limit the addresses of its pods and are refused to others; members are always single addresses.
//
// # Packages
//
//   - tenants: the policy, the objects and the interfaces.
//   - tenants/directory: a node's part: state, disk, ADD and DEL, watches, the view for the flows.
//   - tenants/table: the store in memory or in a file of a shared folder, with the policy in a file.
//   - tenants/kubernetes: the store in an API server.
//   - tenants/kinds: opens the one that the configuration names.
//
// # Assumptions
//
//   - A machine that is declared off is off.
//   - Nodes tell the truth. In Kubernetes an admission policy limits a node to its own objects.
//   - No switch or router holds a packet longer than Drain.
//   - A peering that is younger than a namespace by the store's clock was made for it. Only this depends on a clock: one that goes back between the making of a peering and of a later namespace of the same name opens that namespace to the peer. All other times are spans on one machine.
//   - A restored store without a new epoch is noticed by nodes that went by something later in it and by its epoch. A node that joined later has seen neither.
package tenants
