// Package server serves the CNI plugins over a unix socket of the node. It authenticates the caller, validates the
// request and calls the reconciler.
//
// Every error is a gRPC status with a Problem as its detail, which has the fields of a CNI error:
//
//	CNI  gRPC                 reason
//	  4  INVALID_ARGUMENT     the runtime gave an invalid name, path or identifier
//	  7  INVALID_ARGUMENT     the plugins' configuration has invalid parts, addresses, MAC or rate
//	 11  UNAVAILABLE          try again later: Open vSwitch, FRR, the leaf or the tenant directory is unavailable, the
//	                          address is not released yet, or another request uses the attachment
//	100  -                    CHECK found differences (returned by the plugin)
//	101  ALREADY_EXISTS       the key is already attached with different settings
//	102  ALREADY_EXISTS       the address or the host interface belongs to another live pod
//	103  FAILED_PRECONDITION  the host interface is on no rail's bridge
//	104  FAILED_PRECONDITION  the rail does not carry the address's family
//	105  FAILED_PRECONDITION  the address is outside the prefixes of the rail or of the tenant
//	106  RESOURCE_EXHAUSTED   the rail has reached max_prefixes, or the node has no number left
//	107  RESOURCE_EXHAUSTED   the attachment cannot be stored: the disk is full or broken
//	108  FAILED_PRECONDITION  the network namespace does not exist or is the host's
//	109  FAILED_PRECONDITION  the pod's namespace is in no tenant, or in two
//	110  FAILED_PRECONDITION  Open vSwitch would limit the pod to another rate
//	999  INTERNAL             a bug; the daemon's log has more
package server
