// Package announce announces host routes to the rail leaf through the node's FRR, and withdraws them.
package announce

import (
	"context"
	"net/netip"

	"railwright/node/internal/plan"
)

// Announcer is the reconciler's interface to routing.
type Announcer interface {
	// Sync makes want the rail's announced prefixes. It returns how many were added and removed.
	Sync(ctx context.Context, rail plan.Rail, want []netip.Prefix) (added, removed int, err error)
	// List returns the prefixes that are announced for the rail now.
	List(ctx context.Context, rail plan.Rail) ([]netip.Prefix, error)
	// WaitAdvertised returns once FRR has sent all prefixes to the rail's leaf. When ctx ends first, the error explains
	// why FRR has not.
	WaitAdvertised(ctx context.Context, rail plan.Rail, prefixes []netip.Prefix) error
	// WaitWithdrawn returns once the rail's leaf has none of the prefixes from this node. The error explains why it
	// still has some, or why that is unknown.
	WaitWithdrawn(ctx context.Context, rail plan.Rail, prefixes []netip.Prefix) error
	// Session returns the state of the rail's BGP session with its leaf.
	Session(ctx context.Context, rail plan.Rail) (Session, error)
	// Events reports, until ctx ends, that FRR started or stopped or that another program changed our routes.
	Events(ctx context.Context) <-chan Event
}

// Session is a BGP session with a rail leaf.
type Session struct {
	Peer        string
	Established bool
	// State is FRR's name of the state, such as Active or Idle (PfxCt), with the cause that FRR tells.
	State string
	// WaitsForBFD reports that BGP cannot begin because BFD is not up.
	WaitsForBFD bool
	// Advertised is the number of prefixes that this node advertises to the leaf.
	Advertised int
	// Second is the session with the second leaf, or nil without one.
	Second *Session
}

// Up reports whether a leaf of the rail has a session.
func (s Session) Up() bool { return s.Established || s.Second != nil && s.Second.Established }

// Event is a reason to compare the desired and the actual state again.
type Event struct{ Reason string }
