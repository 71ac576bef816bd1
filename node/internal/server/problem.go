package server

import (
	"context"
	"errors"
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	nodev1 "railwright/node/api/v1"
	"railwright/node/internal/reconcile"
)

// CNI's own codes that we use; the others are in the table of the package's documentation.
const (
	cniBadEnvironment = 4
	cniBadConfig      = 7
	cniTryAgain       = 11
	cniInternal       = 999
)

// answer of a failure.
type reply struct {
	code codes.Code
	cni  uint32
}

var answers = map[reconcile.Kind]reply{
	reconcile.Internal:      {codes.Internal, cniInternal},
	reconcile.Conflicting:     {codes.AlreadyExists, 101},
	reconcile.Taken:         {codes.AlreadyExists, 102},
	reconcile.NotReleased:   {codes.Unavailable, cniTryAgain},
	reconcile.OutsidePrefixes:       {codes.FailedPrecondition, 105},
	reconcile.NoRail:        {codes.FailedPrecondition, 103},
	reconcile.WrongFamily:   {codes.FailedPrecondition, 104},
	reconcile.Full:          {codes.ResourceExhausted, 106},
	reconcile.NotStored:     {codes.ResourceExhausted, 107},
	reconcile.NoPod:         {codes.FailedPrecondition, 108},
	reconcile.NoTenant:      {codes.FailedPrecondition, 109},
	reconcile.SwitchUnavailable:    {codes.Unavailable, cniTryAgain},
	reconcile.RoutingUnavailable:    {codes.Unavailable, cniTryAgain},
	reconcile.NotAdvertised: {codes.Unavailable, cniTryAgain},
	reconcile.NotForwarded:  {codes.Unavailable, cniTryAgain},
	reconcile.DirectoryUnavailable: {codes.Unavailable, cniTryAgain},
	reconcile.Busy:          {codes.Unavailable, cniTryAgain},
}

// message of every failure, in a few words; the details have the cause.
var messages = map[reconcile.Kind]string{
	reconcile.Internal:      "railwrightd failed",
	reconcile.Conflicting:     "already attached with another body",
	reconcile.Taken:         "the address or interface is another pod's",
	reconcile.NotReleased:   "the address is not released yet",
	reconcile.OutsidePrefixes:       "the address is outside of the prefixes allowed",
	reconcile.NoRail:        "the interface is on no rail",
	reconcile.WrongFamily:   "the rail does not carry the address's family",
	reconcile.Full:          "no room for another attachment",
	reconcile.NotStored:     "the attachment cannot be stored",
	reconcile.NoPod:         "the network namespace cannot be used",
	reconcile.NoTenant:      "the namespace is no one tenant's",
	reconcile.SwitchUnavailable:    "the flows are not in place",
	reconcile.RoutingUnavailable:    "the routes are not announced",
	reconcile.NotAdvertised: "the routes were not advertised to the leaf",
	reconcile.NotForwarded:  "the leaf does not forward to the pod yet",
	reconcile.DirectoryUnavailable: "the tenant directory has not taken the addresses",
	reconcile.Busy:          "not now",
}

// problem of an error, as a gRPC status with its detail.
func problem(err error) error {
	var failure *reconcile.Failure
	var bad *badRequest
	switch {
	case errors.As(err, &failure):
		of := answers[failure.Kind]
		return statusOf(of.code, messages[failure.Kind], &nodev1.Problem{
			CniCode: of.cni, Details: failure.Error(), Hint: failure.Hint,
		})
	case errors.As(err, &bad):
		return statusOf(codes.InvalidArgument, "the request cannot be served", &nodev1.Problem{
			CniCode: bad.cni, Details: bad.Error(), Hint: bad.hint,
		})
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return statusOf(codes.Unavailable, messages[reconcile.Busy], &nodev1.Problem{
			CniCode: cniTryAgain, Details: err.Error(), Hint: "try again",
		})
	}
	return statusOf(codes.Internal, messages[reconcile.Internal], &nodev1.Problem{
		CniCode: cniInternal, Details: err.Error(), Hint: "look at the daemon's log",
	})
}

func statusOf(code codes.Code, message string, detail *nodev1.Problem) error {
	made, err := status.New(code, message).WithDetails(detail)
	if err != nil {
		return status.Error(code, fmt.Sprintf("%s: %s", message, detail.Details))
	}
	return made.Err()
}

// badRequest is one that no state of the node could serve.
type badRequest struct {
	cni           uint32
	message, hint string
}

func (b *badRequest) Error() string { return b.message }

func badName(format string, values ...any) error {
	return &badRequest{cniBadEnvironment, fmt.Sprintf(format, values...), "look at what the runtime calls the plugins with"}
}

func badConfig(format string, values ...any) error {
	return &badRequest{cniBadConfig, fmt.Sprintf(format, values...), "look at the network's configuration and its IPAM"}
}
