package tenants

import (
	"context"
	"time"
)

// Store publishes the nodes' records and the operators' policy: a shared folder or an API server. Each record has a
// single writer, so a store needs no transaction over two of them. Each method states what the store must guarantee;
// the package's documentation explains why that is enough.
type Store interface {
	// Publish writes this node's record. After it returns nil, every Read that any node starts later returns the
	// record. It returns ErrForeign if another process changed the record, and ErrRemoved if it is gone or leaving.
	Publish(ctx context.Context, record *Record) error
	// Read returns a snapshot with everything that any node published before this node's last Publish.
	Read(ctx context.Context) (Snapshot, error)
	// Watch calls changed with a new snapshot after possible changes, and lost when it cannot watch, until ctx ends.
	// Its snapshots are never older, by Sequence, than those of earlier calls or of Read.
	Watch(ctx context.Context, changed func(Snapshot), lost func(error))
	// Remove removes a leaving record that no node uses. It ignores a record that is already gone.
	Remove(ctx context.Context, record *Record) error
	// Pace limits how often a node writes.
	Pace(nodes int) Pace
}

// Snapshot is everything that is published, as a node sees it.
type Snapshot struct {
	// Sequence orders the snapshots of one store.
	Sequence uint64
	// Records maps IDs to records. They are shared and must not be changed.
	Records map[string]*Record
	// Unreadable maps names to records that cannot be parsed.
	Unreadable map[string]Unreadable
	// Policy is nil if it cannot be read; PolicyFault then explains why.
	Policy      *Policy
	PolicyFault string
}

// Pace is a rate of writes: a burst, then one in each interval.
type Pace struct {
	Burst    int
	Interval time.Duration
}
