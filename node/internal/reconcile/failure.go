package reconcile

import "fmt"

// Kind classifies failures by what a caller can do about them.
type Kind int

// Kinds of failures.
const (
	// Internal is a bug or an unexpected error.
	Internal Kind = iota
	// Conflicting means that the key is already attached with different settings.
	Conflicting
	// Taken means that an address or interface belongs to another attachment with a live pod.
	Taken
	// OutsidePrefixes means that the address is in none of the prefixes that it must be in.
	OutsidePrefixes
	// NoRail means that the interface is on no rail's bridge.
	NoRail
	// WrongFamily means that the rail does not carry the address family.
	WrongFamily
	// Full means that the rail has reached max_prefixes, or the node has no number left.
	Full
	// NotStored means that the state folder cannot be written.
	NotStored
	// NoPod means that the network namespace does not exist.
	NoPod
	// RateTooHigh means that Open vSwitch would program another rate.
	RateTooHigh
	// SwitchUnavailable means that Open vSwitch or the bridge is unavailable.
	SwitchUnavailable
	// RoutingUnavailable means that FRR or the kernel's table is unavailable.
	RoutingUnavailable
	// NotAdvertised means that the routes were not sent to the leaf in time.
	NotAdvertised
	// NotForwarded means that the leaf sent no packet for the pod in time.
	NotForwarded
	// NoTenant means that the namespace is in two tenants or in none that is valid.
	NoTenant
	// DirectoryUnavailable means that the tenants are unknown.
	DirectoryUnavailable
	// Busy means that another request holds the key.
	Busy
)

// Failure is an error with the next step.
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
