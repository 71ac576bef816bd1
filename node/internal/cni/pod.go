package cni

import (
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"railwright/node/internal/attachment"
)

const maxArgs = 16 << 10

// readPod parses the pod from CNI_ARGS (K=V;K=V). It ignores foreign keys. Multus repeats some keys, which is valid as
// long as the values are equal. It refuses only values that cannot be names; railwrightd applies Kubernetes' rules.
func readPod(arguments string) (attachment.Pod, error) {
	var pod attachment.Pod
	if len(arguments) > maxArgs {
		return pod, badArgs("", "CNI_ARGS must have at most %d bytes, got %d", maxArgs, len(arguments))
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
			return pod, badArgs("", "%s in CNI_ARGS must be a Kubernetes name, got %.80q", name, value)
		case *target != "" && *target != value:
			return pod, badArgs("", "%s in CNI_ARGS must have a single value, got %q and %q", name, *target, value)
		}
		*target = value
	}
	for _, name := range []string{"K8S_POD_NAMESPACE", "K8S_POD_NAME"} {
		if *fields[name] == "" {
			return pod, badArgs("the runtime must set it; to test: CNI_ARGS='IgnoreUnknown=1;K8S_POD_NAMESPACE=tenant1;K8S_POD_NAME=pod1'",
				"CNI_ARGS must have %s, because the pod's namespace decides its tenant", name)
		}
	}
	return pod, nil
}

func badArgs(hint, format string, values ...any) error {
	return failure(types.ErrInvalidEnvironmentVariables, hint, format, values...)
}
