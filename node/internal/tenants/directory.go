package tenants

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"railwright/node/internal/plan"
)

// Directory is the reconciler's interface to the tenants.
type Directory interface {
	// TenantOf returns the tenant of a Kubernetes namespace now: the namespace itself unless a Tenant groups it.
	TenantOf(ctx context.Context, namespace string) (string, error)
	// Regroup returns the tenant by the policy of pods of a namespace that were of a tenant before. It asks nobody as long as
	// the tenant stays.
	Regroup(ctx context.Context, namespace, before string) (string, error)
	// Claim makes the addresses the tenant's on this node. Once it returns, they are published, everything that others had
	// published of the tenant and its peers before is known and on disk, and the View has both: the flows of a version that Since returns
	// from then on may let traffic in. It returns ErrTaken if another attachment or node holds an address, and ErrOutside
	// if the tenant has prefixes and the address is in none of them. It returns ErrLost for an address that Holds denies,
	// until it was withdrawn.
	Claim(ctx context.Context, claim Claim) error
	// Withdraw takes the addresses out of the view and of what other nodes admit, and keeps them claimed. The pod must no
	// longer be able to send. It ignores addresses that are not claimed.
	Withdraw(ctx context.Context, addresses []netip.Addr) error
	// Release gives up addresses that were withdrawn, after Drain. It ignores addresses that are not claimed.
	Release(ctx context.Context, addresses []netip.Addr) error
	// Retain gives up the addresses of all owners that are not listed: their attachments were lost with the state, and the bridges
	// have none of their flows. The daemon calls it at its start, after it has claimed every remaining attachment again.
	Retain(ctx context.Context, owners []string) error
	// Holds reports whether the addresses are still this node's. They are lost if the machine was declared off.
	Holds(addresses []netip.Addr) bool
	// Since returns what changed in the view since a version; 0 is before the first.
	Since(version uint64) Change
	// Version returns the version of the view now.
	Version() uint64
	// Changed returns a channel that is closed at the next change of the view.
	Changed() <-chan struct{}
	// Stopped returns the reasons why no claim is granted at all, a sentence each, such as an unreachable directory.
	Stopped() []string
	// Problems returns problems of single objects, tenants and addresses, a sentence each. They affect nothing else.
	Problems() []string
	// Held returns the number of addresses that this node holds without a pod, until others may use them.
	Held() int
}

// Change is a difference of two views. Its slices and maps must not be changed.
type Change struct {
	// Version is that of the later view.
	Version uint64
	// Whole means that Added has all members of the view, because the earlier one is forgotten.
	Whole          bool
	Added, Removed []plan.Member
	// Members is the number of members of the later view.
	Members int
	// Numbers and Pairs are those of the later view. Redrawn means that they differ from the earlier one's.
	Numbers map[string]uint32
	Pairs   [][2]string
	Redrawn bool
}

// IsLarge reports whether the change has so many members that their flows take much memory.
func (c Change) IsLarge() bool { return len(c.Added)+len(c.Removed) > 4096 }

// Drain is how long a packet of a deleted pod may still be on its way. No switch holds a packet longer.
const Drain = time.Second

// Claim is a request for addresses by a tenant on this node.
type Claim struct {
	Tenant    string
	Rail      string
	Owner     string // the attachment's key
	Addresses []netip.Addr
}

// Errors of a Directory.
var (
	ErrTaken       = errors.New("address belongs to another attachment")
	ErrOutside     = errors.New("address is outside the tenant's prefixes")
	ErrUnreachable = errors.New("tenant directory is unreachable")
	ErrNoTenant    = errors.New("namespace is not in exactly one tenant")
	ErrLost        = errors.New("address is no longer this node's; its flows must be removed, and it be withdrawn")
)
