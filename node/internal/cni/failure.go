package cni

import (
	"errors"
	"fmt"
	"strings"

	"github.com/containernetworking/cni/pkg/types"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	nodev1 "railwright/node/api/v1"
)

// CodeDifferent is the CNI error code of a CHECK that found differences. Codes from 101 on are railwrightd's.
const CodeDifferent = 100

const (
	maxMessageBytes = 1 << 10
	maxDetailsBytes = 4 << 10
)

const checkDaemon = "check that railwrightd runs on this node (its DaemonSet's pod, or its service), and check its log"

// failure returns a CNI error with a code, a hint and a message that contains the value seen.
func failure(code uint, hint, format string, values ...any) *types.Error {
	return withHint(code, fmt.Sprintf(format, values...), "", hint)
}

func withHint(code uint, message, details, hint string) *types.Error {
	// Libraries quote their input, however long it is.
	message, details = shorten(message, maxMessageBytes), shorten(details, maxDetailsBytes)
	if hint != "" {
		hint = "hint: " + hint
	}
	if details != "" && hint != "" {
		details += "; "
	}
	return types.NewError(code, message, details+hint)
}

func shorten(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit], "") + " ..."
}

// problemOf returns the Problem of an error that the daemon itself returned. For all other errors the outcome of the
// call is unknown.
func problemOf(err error) (*nodev1.Problem, bool) {
	grpcStatus, isStatus := status.FromError(err)
	if !isStatus {
		return nil, false
	}
	for _, detail := range grpcStatus.Details() {
		if problem, ok := detail.(*nodev1.Problem); ok {
			return problem, true
		}
	}
	return nil, false
}

// callFailure converts the error of a call to a CNI error.
func callFailure(err error, settings Settings) *types.Error {
	var already *types.Error
	if errors.As(err, &already) {
		return already
	}
	grpcStatus := status.Convert(err)
	if problem, ok := problemOf(err); ok {
		code := uint(problem.GetCniCode())
		if code == 0 {
			code = types.ErrInternal
		}
		return withHint(code, grpcStatus.Message(), problem.GetDetails(), problem.GetHint())
	}
	switch grpcStatus.Code() {
	case codes.Unavailable:
		return withHint(types.ErrTryAgainLater, "railwrightd stopped during the call on "+settings.Socket,
			grpcStatus.Message(), checkDaemon)
	case codes.DeadlineExceeded:
		return failure(types.ErrTryAgainLater, checkDaemon+", or raise timeoutSeconds",
			"railwrightd did not finish within %s", settings.Timeout)
	case codes.InvalidArgument, codes.AlreadyExists:
		return failure(types.ErrInvalidNetworkConfig, "", "%s", grpcStatus.Message())
	default:
		return failure(types.ErrInternal, checkDaemon, "railwrightd: %s: %s", grpcStatus.Code(), grpcStatus.Message())
	}
}
