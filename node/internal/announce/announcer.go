// Package announce makes host routes known to the rail leaf through the node's FRR, and takes them back.
package announce

import (
	"context"
	"net/netip"

	"railwright/node/internal/plan"
)

// Announcer is what the reconciler needs of routing.
type Announcer interface {
	// Sync makes the rail's announced prefixes exactly these; says how many were added and removed.
	Sync(ctx context.Context, rail plan.Rail, want []netip.Prefix) (added, removed int, err error)
	// List what is announced for the rail now.
	List(ctx context.Context, rail plan.Rail) ([]netip.Prefix, error)
	// WaitAdvertised returns once FRR has sent all prefixes to the rail's leaf, or with why not when ctx ends.
	WaitAdvertised(ctx context.Context, rail plan.Rail, prefixes []netip.Prefix) error
	// WaitWithdrawn returns once the rail's leaf has none of the prefixes by this node any more, or with why that is not so or
	// cannot be told.
	WaitWithdrawn(ctx context.Context, rail plan.Rail, prefixes []netip.Prefix) error
	// Session of the rail with its leaf.
	Session(ctx context.Context, rail plan.Rail) (Session, error)
	// Events tells that FRR came or went, or that somebody changed our routes, until ctx ends.
	Events(ctx context.Context) <-chan Event
}

// Session of BGP with a rail leaf.
type Session struct {
	Peer        string
	Established bool
	// State in FRR's words, as Active or Idle (PfxCt).
	State string
	// Advertised prefixes by us to the leaf.
	Advertised int
}

// Event is a reason to look again.
type Event struct{ Why string }
