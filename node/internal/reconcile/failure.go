package reconcile

import "fmt"

// Kind of failure: what a caller can do about it.
type Kind int

// The kinds.
const (
	// Internal is our own fault.
	Internal Kind = iota
	// OtherBody: the key is attached already, with another body.
	OtherBody
	// Taken: an address or interface is another attachment's, whose pod lives.
	Taken
	// NotReleased: the address was another tenant's, and a node has not let go of it yet.
	NotReleased
	// Outside: the address is in none of the prefixes it must be in.
	Outside
	// NoRail: the interface is on no rail's bridge.
	NoRail
	// WrongFamily: the rail does not carry that family.
	WrongFamily
	// Full: the rail announces as much as it may, or the node has no number left.
	Full
	// NotStored: the state folder cannot be written.
	NotStored
	// NoPod: the network namespace is none.
	NoPod
	// SwitchAway: Open vSwitch or the bridge cannot be had.
	SwitchAway
	// RoutesAway: FRR or the kernel's table cannot be had.
	RoutesAway
	// NotAdvertised: the leaf was not sent the routes in time.
	NotAdvertised
	// NotForwarded: the leaf has sent no packet for the pod here in time.
	NotForwarded
	// NoTenant: the namespace is in two tenants, or in none that may be.
	NoTenant
	// DirectoryAway: who the tenants are cannot be told.
	DirectoryAway
	// Busy: the same key is still being worked on.
	Busy
)

// Failure says what went wrong, and the next step.
type Failure struct {
	Kind Kind
	Err  error
	Hint string
}

func (f *Failure) Error() string { return f.Err.Error() }

func (f *Failure) Unwrap() error { return f.Err }

func fail(kind Kind, hint, format string, values ...any) *Failure {
	return &Failure{kind, fmt.Errorf(format, values...), hint}
}
