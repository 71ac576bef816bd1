package cni

import (
	"strings"

	"github.com/containernetworking/cni/pkg/types"

	"railwright/node/internal/attachment"
)

const mostArgs = 16 << 10

const (
	lower  = "abcdefghijklmnopqrstuvwxyz"
	upper  = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
	digits = "0123456789"
)

// grammar of a name. Not a regular expression: compiling these took 0.9 ms at the start of every run.
type grammar struct {
	longest int
	// within are the characters, and ends those of the first and the last.
	within, ends string
}

// Names of Kubernetes: a namespace is a DNS label, a pod a DNS subdomain; a UID has no grammar of its own.
var (
	namespaces = grammar{63, lower + digits + "-", lower + digits}
	podNames   = grammar{253, lower + digits + "-.", lower + digits}
	uids       = grammar{64, lower + upper + digits + "-", lower + upper + digits}
)

func (g grammar) fits(name string) bool {
	if name == "" || len(name) > g.longest {
		return false
	}
	return strings.Trim(name, g.within) == "" &&
		strings.IndexByte(g.ends, name[0]) >= 0 && strings.IndexByte(g.ends, name[len(name)-1]) >= 0
}

// readPod takes the pod from CNI_ARGS (K=V;K=V). Keys that are not ours are left alone; Multus gives some twice, which
// is fine as long as they say the same.
func readPod(arguments string) (attachment.Pod, error) {
	var pod attachment.Pod
	if len(arguments) > mostArgs {
		return pod, badArgs("", "CNI_ARGS has %d bytes, at most %d are read", len(arguments), mostArgs)
	}
	wanted := map[string]struct {
		target  *string
		grammar grammar
	}{
		"K8S_POD_NAMESPACE": {&pod.Namespace, namespaces},
		"K8S_POD_NAME":      {&pod.Name, podNames},
		"K8S_POD_UID":       {&pod.UID, uids},
	}
	for _, pair := range strings.Split(arguments, ";") {
		name, value, _ := strings.Cut(pair, "=")
		field, ours := wanted[name]
		switch {
		case !ours || value == "" && name == "K8S_POD_UID":
			continue
		case !field.grammar.fits(value):
			return pod, badArgs("", "CNI_ARGS: %s is %.80q, which is no name that Kubernetes gives", name, value)
		case *field.target != "" && *field.target != value:
			return pod, badArgs("", "CNI_ARGS: %s is given twice, as %q and as %q", name, *field.target, value)
		}
		*field.target = value
	}
	for _, name := range []string{"K8S_POD_NAMESPACE", "K8S_POD_NAME"} {
		if *wanted[name].target == "" {
			return pod, badArgs("let the runtime set it; by hand: CNI_ARGS='IgnoreUnknown=1;K8S_POD_NAMESPACE=tenant1;K8S_POD_NAME=pod1'",
				"CNI_ARGS has no %s, and the pod's namespace decides its tenant", name)
		}
	}
	return pod, nil
}

func badArgs(hint, format string, values ...any) error {
	return failure(types.ErrInvalidEnvironmentVariables, hint, format, values...)
}
