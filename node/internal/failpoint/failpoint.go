// Package failpoint names the steps at which a test can kill railwrightd to check that a restart recovers. Only a build
// with the tag `failpoints` can be killed: RAILWRIGHT_FAILPOINT=NAME ends the process with SIGKILL, as a power cut
// would. Without the tag Reach does nothing.
package failpoint

import "slices"

// Name is the name of a step. Reach is called right after the step is done.
type Name string

// The steps of ADD in order.
const (
	AddAccepted   Name = "add-accepted"   // the request is valid; nothing is done
	AddStored     Name = "add-stored"     // the record is on disk
	AddClaimed    Name = "add-claimed"    // the tenant directory has the addresses
	AddFlows      Name = "add-flows"      // the flows are on the bridge
	AddRoutes     Name = "add-routes"     // FRR has the routes
	AddAdvertised Name = "add-advertised" // the leaf was sent the routes
	AddAnswered   Name = "add-answered"   // all is done; the reply is not sent
)

// The steps of DEL in order.
const (
	DeleteAccepted  Name = "delete-accepted"  // the request is valid; nothing is done
	DeleteStored    Name = "delete-stored"    // the record on disk says that the attachment leaves
	DeleteWithdrawn Name = "delete-withdrawn" // FRR no longer has the routes
	DeleteFlows     Name = "delete-flows"     // the flows are gone
	DeleteReleased  Name = "delete-released"  // the tenant directory has released the addresses
	DeleteRemoved   Name = "delete-removed"   // the record is gone from disk
	DeleteAnswered  Name = "delete-answered"  // all is done; the reply is not sent
)

// The steps of writing a record in order.
const (
	StoreWritten  Name = "store-written"  // the temporary file is written but not synced
	StoreSynced   Name = "store-synced"   // the temporary file is on disk
	StoreRenamed  Name = "store-renamed"  // the file has its final name; the folder is not synced
	StoreUnlinked Name = "store-unlinked" // a record's file is deleted; the folder is not synced
)

// AddSteps returns the steps of an ADD, including those of its record.
func AddSteps() []Name {
	return []Name{
		AddAccepted, StoreWritten, StoreSynced, StoreRenamed, AddStored, AddClaimed, AddFlows, AddRoutes, AddAdvertised,
		AddAnswered,
	}
}

// DeleteSteps returns the steps of a DEL, including those of its record.
func DeleteSteps() []Name {
	return []Name{
		DeleteAccepted, StoreWritten, StoreSynced, StoreRenamed, DeleteStored, DeleteWithdrawn, DeleteFlows,
		DeleteReleased, StoreUnlinked, DeleteRemoved, DeleteAnswered,
	}
}

// Known reports whether a step has the name.
func Known(name Name) bool {
	return slices.Contains(AddSteps(), name) || slices.Contains(DeleteSteps(), name)
}
