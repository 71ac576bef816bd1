package tenants

import (
	"context"
	"time"
)

// Store is where nodes publish their records and people their policy: a shared folder, an API server. Records are each
// written by one node alone, so that a store needs no transaction over two of them. What it must give is said at each
// call; doc.go says why that is enough.
type Store interface {
	// Publish makes this node's record what it is. Once it returns nil, every Read that any node starts later finds it.
	// ErrForeign where the record was changed by somebody else, ErrRemoved where it is gone or leaving.
	Publish(ctx context.Context, record *Record) error
	// Read gives a snapshot with everything in it that was published, by any node, before this node's last Publish.
	Read(ctx context.Context) (Snapshot, error)
	// Watch calls changed with a new snapshot when there may be one, and lost when it cannot hear, until ctx ends. What
	// it gives is never older than what it or Read gave before, by Sequence.
	Watch(ctx context.Context, changed func(Snapshot), lost func(error))
	// Remove takes away a leaving record that nobody acts by any more. What is gone already is fine.
	Remove(ctx context.Context, record *Record) error
	// Pace bounds how often a node writes.
	Pace(nodes int) Pace
}

// Snapshot is all that is published, as one node has it.
type Snapshot struct {
	// Sequence orders the snapshots of one store.
	Sequence uint64
	// Records by ID. Read only: snapshots share them.
	Records map[string]*Record
	// Unreadable records by name.
	Unreadable map[string]Unreadable
	// Policy; nil where it could not be read, and why not.
	Policy      *Policy
	PolicyFault string
}

// Pace of writing: so many at once, and then one each Interval.
type Pace struct {
	Burst    int
	Interval time.Duration
}
