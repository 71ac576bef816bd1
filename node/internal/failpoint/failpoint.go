// Package failpoint names the steps at which railwrightd can be made to die, so that a test can kill it at each of them
// and see what a restart makes of it. Only a build with the tag `failpoints` can die: there RAILWRIGHT_FAILPOINT=NAME
// ends the process with SIGKILL, as a power cut would. Without the tag Reach is nothing.
package failpoint

import "slices"

// Name of a step; Reach is called right after what it names was done.
type Name string

// The steps of ADD, in their order.
const (
	AddAccepted   Name = "add-accepted"   // the request is valid, nothing was done
	AddStored     Name = "add-stored"     // the record is on disk
	AddClaimed    Name = "add-claimed"    // the tenant directory has the addresses
	AddFlows      Name = "add-flows"      // the flows are on the bridge
	AddRoutes     Name = "add-routes"     // FRR has been given the routes
	AddAdvertised Name = "add-advertised" // the leaf has been sent the routes
	AddAnswered   Name = "add-answered"   // all was done, the answer was not sent
)

// The steps of DEL, in their order.
const (
	DeleteAccepted  Name = "delete-accepted"  // the request is valid, nothing was done
	DeleteStored    Name = "delete-stored"    // the record says on disk that it leaves
	DeleteWithdrawn Name = "delete-withdrawn" // FRR no longer has the routes
	DeleteFlows     Name = "delete-flows"     // the flows are gone
	DeleteReleased  Name = "delete-released"  // the tenant directory was told
	DeleteRemoved   Name = "delete-removed"   // the record is gone from disk
	DeleteAnswered  Name = "delete-answered"  // all was done, the answer was not sent
)

// The steps of writing one record, in their order.
const (
	StoreWritten  Name = "store-written"  // the temporary file is written, not synced
	StoreSynced   Name = "store-synced"   // the temporary file is on disk
	StoreRenamed  Name = "store-renamed"  // it has its name; the folder is not synced
	StoreUnlinked Name = "store-unlinked" // a record's file is gone; the folder is not synced
)

// OfAdd are the steps that an ADD comes by, those of its record included.
func OfAdd() []Name {
	return []Name{
		AddAccepted, StoreWritten, StoreSynced, StoreRenamed, AddStored, AddClaimed, AddFlows, AddRoutes, AddAdvertised,
		AddAnswered,
	}
}

// OfDelete are the steps that a DEL comes by, those of its record included.
func OfDelete() []Name {
	return []Name{
		DeleteAccepted, StoreWritten, StoreSynced, StoreRenamed, DeleteStored, DeleteWithdrawn, DeleteFlows,
		DeleteReleased, StoreUnlinked, DeleteRemoved, DeleteAnswered,
	}
}

// Known says whether a step has that name.
func Known(name Name) bool {
	return slices.Contains(OfAdd(), name) || slices.Contains(OfDelete(), name)
}
