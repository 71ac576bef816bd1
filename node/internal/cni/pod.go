package cni

import (
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"railwright/node/internal/attachment"
)

const mostArgs = 16 << 10

// readPod takes the pod from CNI_ARGS (K=V;K=V). Keys that are not ours are left alone; Multus gives some twice, which
// is fine as long as they say the same. Only what cannot be a name at all is refused here: railwrightd holds names to
// Kubernetes' rules.
func readPod(arguments string) (attachment.Pod, error) {
	var pod attachment.Pod
	if len(arguments) > mostArgs {
		return pod, badArgs("", "CNI_ARGS has %d bytes, at most %d are read", len(arguments), mostArgs)
	}
	fields := map[string]*string{
		"K8S_POD_NAMESPACE": &pod.Namespace, "K8S_POD_NAME": &pod.Name, "K8S_POD_UID": &pod.UID,
	}
	for _, pair := range strings.Split(arguments, ";") {
		name, value, _ := strings.Cut(pair, "=")
		target, ours := fields[name]
		switch {
		case !ours || value == "" && name == "K8S_POD_UID":
			continue
		case !attachment.IsPlain(value):
			return pod, badArgs("", "CNI_ARGS: %s is %.80q, which is no name that Kubernetes gives", name, value)
		case *target != "" && *target != value:
			return pod, badArgs("", "CNI_ARGS: %s is given twice, as %q and as %q", name, *target, value)
		}
		*target = value
	}
	for _, name := range []string{"K8S_POD_NAMESPACE", "K8S_POD_NAME"} {
		if *fields[name] == "" {
			return pod, badArgs("let the runtime set it; by hand: CNI_ARGS='IgnoreUnknown=1;K8S_POD_NAMESPACE=tenant1;K8S_POD_NAME=pod1'",
				"CNI_ARGS has no %s, and the pod's namespace decides its tenant", name)
		}
	}
	return pod, nil
}

func badArgs(hint, format string, values ...any) error {
	return failure(types.ErrInvalidEnvironmentVariables, hint, format, values...)
}
