//go:build k8s

// Package k8s tries the node network in a real Kubernetes: an API server with its controllers and scheduler, and nodes
// made of namespaces, each with containerd, kubelet, Multus, Open vSwitch and FRR of its own, on a fabric of two rails.
//
//	go test -tags k8s ./test/k8s/
//
// Needs root, the Debian packages that `make test-deps` installs, and the first time about 13 minutes of one core to
// build Kubernetes (see build). RAILWRIGHT_K8S_KEEP=1 leaves the folder with all logs and says where it is.
package k8s

import (
	"fmt"
	"os"
	"testing"
)

// nodeInit as first argument makes this program the first process of a node.
const nodeInit = "railwright-node-init"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == nodeInit {
		fmt.Fprintln(os.Stderr, runNodeInit(os.Args[2]))
		os.Exit(3)
	}
	os.Exit(m.Run())
}
