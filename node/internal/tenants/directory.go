package tenants

import (
	"context"
	"errors"
	"net/netip"

	"railwright/node/internal/plan"
)

// Directory is the reconciler's interface to the tenants.
type Directory interface {
	// TenantOf returns the tenant of a Kubernetes namespace: the namespace itself unless a Tenant groups it.
	TenantOf(ctx context.Context, namespace string) (string, error)
	// Claim publishes that the addresses belong to the tenant on this node. It returns ErrTaken if another attachment
	// holds an address, ErrNotReleased if another tenant had it and a node may still admit that tenant's packets, and
	// ErrOutside if the tenant has prefixes and the address is in none of them.
	Claim(ctx context.Context, claim Claim) error
	// Release undoes Claim. It ignores addresses that are not claimed. It can return before other nodes see the
	// release.
	Release(ctx context.Context, addresses []netip.Addr) error
	// Hold reserves the addresses of a deleted pod until Release, so that no other node assigns them, including
	// addresses within a tenant's prefixes, which are not published otherwise. If it succeeds, all nodes with pods of
	// the tenant know.
	Hold(ctx context.Context, addresses []netip.Addr) error
	// Retain releases the claims of all owners that are not listed: their attachments were lost with the state. The
	// daemon calls it at its start, after it has claimed every remaining attachment again.
	Retain(ctx context.Context, owners []string) error
	// WaitConfirmed waits until every node with pods of the tenant admits the addresses. When ctx ends first, it
	// returns the nodes that have not confirmed.
	WaitConfirmed(ctx context.Context, addresses []netip.Addr) (missing []string)
	// View returns the tenants' state for the tenants with pods here, its version, and a channel that is closed at the
	// next change.
	View(local []string) (plan.Tenants, uint64, <-chan struct{})
	// Confirm records that the flows of the view are in place on this node.
	Confirm(ctx context.Context, version uint64) error
	// Stopped returns the reasons why no claim is granted at all, a sentence each, such as an unreachable directory.
	Stopped() []string
	// Problems returns problems of single records, tenants and addresses, a sentence each. They affect nothing else.
	Problems() []string
}

// Claim is a request for addresses by a tenant on this node.
type Claim struct {
	Tenant    string
	Rail      string
	Owner     string // the attachment's key
	Addresses []netip.Addr
}

// Errors of Directory.Claim.
var (
	ErrTaken       = errors.New("address belongs to another attachment")
	ErrNotReleased = errors.New("address belonged to another tenant, and a node has not confirmed its release")
	ErrOutside     = errors.New("address is outside the tenant's prefixes")
	ErrUnreachable = errors.New("tenant directory is unreachable")
	ErrNoTenant    = errors.New("namespace is not in exactly one tenant")
)

// Errors of a Store.
var (
	ErrForeign = errors.New("another process writes this node's record")
	ErrRemoved = errors.New("this node's record was removed")
)
