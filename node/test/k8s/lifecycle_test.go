//go:build k8s

package k8s

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"railwright/node/internal/plan"
)

// referencePod starts and deletes a pod with eight GPUs and a VF on each rail, the main use of the node network.
func (c *cluster) referencePod(t *testing.T) {
	c.namespace(t, "tenant1", "whereabouts")
	before := c.settled(t)
	start := time.Now()
	pods := c.run(t, podSpec{Namespace: "tenant1", Name: "gpu-pod", GPUs: true})
	t.Logf("Ready %.1f s after the pod was requested, as observed with kubectl", time.Since(start).Seconds())
	pod := pods[0]
	for number, leaf := range c.leaves {
		link := fmt.Sprintf("net%d", number+1)
		address := pod.Address(link)
		if !leaf.Rail.Prefixes[0].Contains(address) {
			t.Errorf("%s of %s has %s, outside of %s", link, pod, address, leaf.Rail.Prefixes[0])
		}
		if node := leaf.hostRoutes(t)[address]; node != pod.Node.Name {
			t.Errorf("pod is Ready, but the leaf of %s sends packets for %s to %q instead of %s", leaf.Rail.Name, address, node, pod.Node.Name)
		}
	}
	environment := c.kubectl(t, "exec", "-n", "tenant1", "gpu-pod", "--", "env")
	for _, variable := range []string{"PCIDEVICE_NVIDIA_COM_MLNX_SRIOV_PF1_VF=", "PCIDEVICE_NVIDIA_COM_MLNX_SRIOV_PF2_VF="} {
		if !strings.Contains(environment, variable) {
			t.Errorf("%s lacks the variable %s", pod, variable)
		}
	}
	start = time.Now()
	c.remove(t, pod)
	t.Logf("gone %.1f s after the deletion was requested", time.Since(start).Seconds())
	c.awaitTraces(t, before)
}

// examplesAccepted checks that the API server accepts the unchanged examples.
func (c *cluster) examplesAccepted(t *testing.T) {
	for _, example := range []string{"nv-ipam/networks.yaml", "whereabouts/networks.yaml", "host-local/networks.yaml", "pod.yaml"} {
		output, err := c.tryKubectl("", "apply", "--dry-run=server", "-n", "tenant1", "-f", deployFolder+"/examples/"+example)
		if err != nil {
			t.Errorf("%s: %s", example, output)
		}
	}
}

// tenantsApart tests isolation with pods of two namespaces on each of two nodes, on both rails.
func (c *cluster) tenantsApart(t *testing.T) {
	c.namespace(t, "tenant2", "whereabouts")
	var wantedPods []podSpec
	for _, namespace := range []string{"tenant1", "tenant2"} {
		for _, node := range c.nodes {
			wantedPods = append(wantedPods, podSpec{Namespace: namespace, Name: "on-" + node.Name, Node: node.Name})
		}
	}
	pods := c.run(t, wantedPods...)
	c.checkIsolation(t, pods)
	c.remove(t, pods...)
}

// checkIsolation checks that pods reach those of their namespace on every path, and that no packet reaches a pod of
// another namespace on any rail in any family. Within a namespace every packet must arrive: the pace is low enough that
// no queue overflows if the machine is busy for seconds.
func (c *cluster) checkIsolation(t *testing.T, pods []*pod) {
	t.Helper()
	other := func(from, to *pod) bool { return from.Namespace != to.Namespace }
	dropped := c.countDropped(t)
	refused := exchange(t, pods, insistent, other)
	if refused.Arrived != 0 || refused.Answered != 0 {
		t.Errorf("to other tenants: %d sent, %d arrived, %d answered", refused.Sent, refused.Arrived, refused.Answered)
	}
	// Open vSwitch adds the drops of the datapath's flows to its own counters periodically.
	await(t, "counters of the flows that drop", 10*time.Second, func() string {
		if counted := c.countDropped(t) - dropped; counted < refused.Sent {
			return fmt.Sprintf("%d packets of %d that were sent to other tenants", counted, refused.Sent)
		}
		return ""
	})
	passed := exchange(t, pods, unhurried, func(from, to *pod) bool { return from != to && !other(from, to) })
	if passed.Sent != passed.Paths*unhurried.count || passed.Paths == 0 || passed.Arrived < passed.Sent || passed.Answered < passed.Sent {
		t.Errorf("within tenants, on %d paths: %d sent, %d arrived, %d answered, on the worst path %d of %d", passed.Paths,
			passed.Sent, passed.Arrived, passed.Answered, passed.Worst, unhurried.count)
	}
	t.Logf("within tenants %d of %d packets arrived and %d were answered, to other tenants %d of %d arrived",
		passed.Arrived, passed.Sent, passed.Answered, refused.Arrived, refused.Sent)
}

// countDropped returns the number of packets between tenants that the flows of all nodes dropped.
func (c *cluster) countDropped(t *testing.T) int {
	t.Helper()
	count := 0
	for _, node := range c.nodes {
		for _, flow := range node.flows(t) {
			switch flow.Reason {
			case plan.DropOtherTenant, plan.DropUnknownDestination, plan.DropUnknownSource:
				count += flow.Packets
			}
		}
	}
	return count
}

// firstPackets checks that the packet that a pod's first command sends to a pod on the other node is answered.
func (c *cluster) firstPackets(t *testing.T) {
	target := c.run(t, podSpec{Namespace: "tenant1", Name: "target", Node: c.nodes[0].Name})[0]
	defer c.remove(t, target)
	var manifests, names []string
	for try := range 5 {
		name := fmt.Sprintf("first-%d", try)
		pod := podSpec{Namespace: "tenant1", Name: name, Node: c.nodes[1].Name}.object(t)
		pod.container().set([]string{"ping", "-c", "1", "-W", "1", "-I", "net1", target.Address("net1").String()}, "command")
		pod.set("Never", "spec", "restartPolicy")
		manifests, names = append(manifests, pod.text(t)), append(names, "pod/"+name)
	}
	c.apply(t, manifests...)
	for _, name := range names {
		output, err := c.tryKubectl("", "wait", "-n", "tenant1", "--for=jsonpath={.status.phase}=Succeeded", "--timeout=40s", name)
		if err != nil {
			log, _ := c.tryKubectl("", "logs", "-n", "tenant1", name)
			t.Errorf("first packet of %s was not answered: %s\n%s", name, output, log)
		}
	}
	c.kubectl(t, append([]string{"delete", "-n", "tenant1", "--timeout=40s"}, names...)...)
}
