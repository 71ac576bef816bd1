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

// CNI codes with a name; the package's documentation lists the others.
const (
	cniBadEnvironment = 4
	cniBadConfig      = 7
	cniTryAgain       = 11
	cniInternal       = 999
)

// errorCodes holds the codes of a failure.
type errorCodes struct {
	code codes.Code
	cni  uint32
}

var codesOf = map[reconcile.Kind]errorCodes{
	reconcile.Internal:             {codes.Internal, cniInternal},
	reconcile.Conflicting:          {codes.AlreadyExists, 101},
	reconcile.Taken:                {codes.AlreadyExists, 102},
	reconcile.OutsidePrefixes:      {codes.FailedPrecondition, 105},
	reconcile.NoRail:               {codes.FailedPrecondition, 103},
	reconcile.WrongFamily:          {codes.FailedPrecondition, 104},
	reconcile.Full:                 {codes.ResourceExhausted, 106},
	reconcile.NotStored:            {codes.ResourceExhausted, 107},
	reconcile.NoPod:                {codes.FailedPrecondition, 108},
	reconcile.NoTenant:             {codes.FailedPrecondition, 109},
	reconcile.RateTooHigh:          {codes.FailedPrecondition, 110},
	reconcile.SwitchUnavailable:    {codes.Unavailable, cniTryAgain},
	reconcile.RoutingUnavailable:   {codes.Unavailable, cniTryAgain},
	reconcile.NotAdvertised:        {codes.Unavailable, cniTryAgain},
	reconcile.NotForwarded:         {codes.Unavailable, cniTryAgain},
	reconcile.DirectoryUnavailable: {codes.Unavailable, cniTryAgain},
	reconcile.Busy:                 {codes.Unavailable, cniTryAgain},
}

// messageOf holds a short message for each kind. The details have the cause.
var messageOf = map[reconcile.Kind]string{
	reconcile.Internal:             "internal error of railwrightd",
	reconcile.Conflicting:          "interface is already attached with different settings",
	reconcile.Taken:                "address or interface belongs to another pod",
	reconcile.OutsidePrefixes:      "address is outside the allowed prefixes",
	reconcile.NoRail:               "interface is on no rail",
	reconcile.WrongFamily:          "rail does not carry the address family",
	reconcile.Full:                 "no room for another attachment",
	reconcile.NotStored:            "cannot store the attachment",
	reconcile.NoPod:                "invalid network namespace",
	reconcile.RateTooHigh:          "rate cannot be programmed",
	reconcile.NoTenant:             "namespace is not in exactly one tenant",
	reconcile.SwitchUnavailable:    "flows are not in place",
	reconcile.RoutingUnavailable:   "routes are not announced",
	reconcile.NotAdvertised:        "routes were not advertised to the leaf",
	reconcile.NotForwarded:         "leaf does not forward to the pod yet",
	reconcile.DirectoryUnavailable: "tenant directory has not accepted the addresses",
	reconcile.Busy:                 "busy, try again",
}

// problem converts an error to a gRPC status with a Problem.
func problem(err error) error {
	var failure *reconcile.Failure
	var bad *badRequest
	switch {
	case errors.As(err, &failure):
		failed := codesOf[failure.Kind]
		return statusOf(failed.code, messageOf[failure.Kind], &nodev1.Problem{
			CniCode: failed.cni, Details: failure.Error(), Hint: failure.Hint,
		})
	case errors.As(err, &bad):
		return statusOf(codes.InvalidArgument, "invalid request", &nodev1.Problem{
			CniCode: bad.cni, Details: bad.Error(), Hint: bad.hint,
		})
	case errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		return statusOf(codes.Unavailable, messageOf[reconcile.Busy], &nodev1.Problem{
			CniCode: cniTryAgain, Details: err.Error(), Hint: "try again",
		})
	}
	return statusOf(codes.Internal, messageOf[reconcile.Internal], &nodev1.Problem{
		CniCode: cniInternal, Details: err.Error(), Hint: "check the daemon's log",
	})
}

func statusOf(code codes.Code, message string, detail *nodev1.Problem) error {
	made, err := status.New(code, message).WithDetails(detail)
	if err != nil {
		return status.Error(code, fmt.Sprintf("%s: %s", message, detail.Details))
	}
	return made.Err()
}

// badRequest is a request that is invalid in every state of the node.
type badRequest struct {
	cni           uint32
	message, hint string
}

func (b *badRequest) Error() string { return b.message }

func badName(format string, values ...any) error {
	return &badRequest{cniBadEnvironment, fmt.Sprintf(format, values...), "check the arguments that the runtime calls the plugins with"}
}

func badConfig(format string, values ...any) error {
	return &badRequest{cniBadConfig, fmt.Sprintf(format, values...), "check the network's configuration and its IPAM"}
}
