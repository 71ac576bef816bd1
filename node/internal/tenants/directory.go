package tenants

import (
	"context"
	"errors"
	"net/netip"

	"railwright/node/internal/plan"
)

// Directory is what the reconciler and Add need of tenants.
type Directory interface {
	// TenantOf a namespace of Kubernetes: the namespace itself unless a Tenant groups it.
	TenantOf(ctx context.Context, namespace string) (string, error)
	// Claim publishes that the address belongs to the tenant and sits on this node. ErrTaken where another attachment
	// holds it, ErrNotReleased where another tenant had it and a node may still let that one's packets in,
	// ErrOutside where the tenant has prefixes and the address is in none of them.
	Claim(ctx context.Context, claim Claim) error
	// Release is Claim's reverse; what is gone already is fine. It may return before others have seen it.
	Release(ctx context.Context, addresses []netip.Addr) error
	// Hold addresses until Release though their pods are gone, so that no other node gives one to a pod: also those that
	// a tenant's prefixes cover, which are not published otherwise. Without an error all nodes with pods of the tenant know.
	Hold(ctx context.Context, addresses []netip.Addr) error
	// Retain releases what owners hold that are not listed: claims whose attachment was lost with its state. For the
	// daemon's start, once every attachment that is left has been claimed again.
	Retain(ctx context.Context, owners []string) error
	// WaitConfirmed until every node that has pods of the tenant lets the addresses in, or ctx ends: then the nodes
	// that did not confirm.
	WaitConfirmed(ctx context.Context, addresses []netip.Addr) (missing []string)
	// View for the tenants that have pods here, and a channel that is closed once it has changed.
	View(local []string) (plan.Tenants, uint64, <-chan struct{})
	// Confirm that the flows of that view are in place on this node.
	Confirm(ctx context.Context, version uint64) error
	// Stopped: why no claim at all is granted, one sentence each; the directory cannot be reached, and since when.
	Stopped() []string
	// Problems of single records, tenants and addresses, one sentence each; others are served.
	Problems() []string
}

// Claim of addresses by a tenant on this node.
type Claim struct {
	Tenant    string
	Rail      string
	Owner     string // the attachment's key
	Addresses []netip.Addr
}

// Errors of Claim.
var (
	ErrTaken       = errors.New("the address is another attachment's")
	ErrNotReleased = errors.New("the address was another tenant's, and a node has not confirmed that it let go of it")
	ErrOutside     = errors.New("the address is in none of the tenant's prefixes")
	ErrUnreachable = errors.New("the tenant directory cannot be reached")
	ErrNoTenant    = errors.New("the namespace belongs to no one tenant")
)

// Errors of a Store.
var (
	ErrForeign = errors.New("somebody else writes this node's record")
	ErrRemoved = errors.New("this node's record was taken away")
)
