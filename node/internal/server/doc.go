// Package server answers the CNI plugins over a unix socket of the node: it checks who asks and what is asked, and lets
// the reconciler do it.
//
// Every error is a gRPC status with a Problem as its detail, which carries what a CNI error has:
//
//	CNI  gRPC                 when
//	  4  INVALID_ARGUMENT     a name, path or identifier that the runtime gave is none
//	  7  INVALID_ARGUMENT     what the plugins made of the configuration cannot be: parts, addresses, MAC, rate
//	 11  UNAVAILABLE          try again later: Open vSwitch, FRR, the leaf or the tenant directory are away, the
//	                          address is not released yet, the same attachment is being worked on
//	100  -                    CHECK found differences (made by the plugin)
//	101  ALREADY_EXISTS       the key is attached already, with another body
//	102  ALREADY_EXISTS       the address or the host's interface is another pod's that lives
//	103  FAILED_PRECONDITION  the host's interface is on no rail's bridge
//	104  FAILED_PRECONDITION  the rail does not carry the address's family
//	105  FAILED_PRECONDITION  the address is in none of the prefixes of the rail or of the tenant
//	106  RESOURCE_EXHAUSTED   the rail announces as much as it may, or the node has no number left
//	107  RESOURCE_EXHAUSTED   the attachment cannot be stored: the disk is full or broken
//	108  FAILED_PRECONDITION  the network namespace is none, or the host's
//	109  FAILED_PRECONDITION  the pod's namespace is in no tenant, or in two
//	999  INTERNAL             our own fault; the daemon's log has more
package server
