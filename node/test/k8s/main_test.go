//go:build k8s

// Package k8s tests the node network in a real Kubernetes cluster: an API server with controllers and a scheduler, and
// nodes made of namespaces, each with its own containerd, kubelet, Multus, Open vSwitch and FRR, on a fabric of two rails.
//
//	go test -tags k8s ./test/k8s/
//
// The tests need root and the Debian packages that `make test-deps` installs. The first run builds Kubernetes (see build),
// which takes about 13 minutes on one core. RAILWRIGHT_K8S_KEEP=1 keeps the folder with all logs and prints its path.
package k8s

import (
	"fmt"
	"os"
	"testing"
)

// nodeInit is the first argument with which this program runs as the first process of a node.
const nodeInit = "railwright-node-init"

func TestMain(m *testing.M) {
	if len(os.Args) == 3 && os.Args[1] == nodeInit {
		fmt.Fprintln(os.Stderr, runNodeInit(os.Args[2]))
		os.Exit(3)
	}
	os.Exit(m.Run())
}
