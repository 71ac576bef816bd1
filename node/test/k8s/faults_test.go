//go:build k8s

package k8s

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"railwright/node/testlab"
)

// restarts restarts each component of a node while other pods send to each other.
func (c *cluster) restarts(t *testing.T) {
	pods := c.run(t,
		podSpec{Namespace: "tenant1", Name: "steady-1", Node: c.nodes[0].Name},
		podSpec{Namespace: "tenant1", Name: "steady-2", Node: c.nodes[1].Name})
	defer c.remove(t, pods...)
	node := c.nodes[0]
	for _, restart := range []struct {
		name string
		do   func(t *testing.T)
		// stops reports that packets may be lost until shortly after the component is back. An unnumbered session ends
		// with the bridge's interface; the leaf keeps its routes, because only the node opens the session again
		// (docs/guarantees.md, "When ovs-vswitchd ends").
		stops bool
	}{
		{name: "kubelet", do: node.killKubelet},
		{name: "containerd", do: func(t *testing.T) { node.Kill(t, "containerd"); node.Restart(t, "containerd") }},
		{name: "the API server", do: func(t *testing.T) {
			c.kill("kube-apiserver")
			c.start(t, "kube-apiserver")
			c.awaitAPI(t)
		}},
		{name: "railwrightd, killed", do: node.killDaemon},
		{name: "railwrightd, its pod deleted", do: func(t *testing.T) {
			c.kubectl(t, "-n", "railwright", "delete", "pod", "--field-selector=spec.nodeName="+node.Name, "--timeout=40s")
		}},
		{name: "bgpd of the node", do: func(t *testing.T) { node.FRR.Kill(t, "bgpd"); node.FRR.Start(t, "bgpd") }},
		{name: "ovs-vswitchd", do: func(t *testing.T) {
			node.Switch.Kill(t, testlab.Switch)
			node.Switch.Start(t, testlab.Switch)
			for _, rail := range c.rails {
				testlab.Eventually(t, "ovs-vswitchd answers for "+rail.Bridge, func() bool { return node.Switch.Answers(rail.Bridge) })
			}
		}, stops: true},
	} {
		worked := t.Run(restart.name, func(t *testing.T) {
			there := c.startFlow(t, pods[0], "net1", pods[1])
			back := c.startFlow(t, pods[1], "net2", pods[0])
			start := time.Now()
			restart.do(t)
			away := time.Since(start)
			// A new pod shows that the component is back and works.
			c.remove(t, c.run(t, podSpec{Namespace: "tenant1", Name: "after", Node: node.Name})...)
			t.Logf("a pod could start and end again %.1f s after the restart", time.Since(start).Seconds())
			allowed := 0
			if restart.stops {
				allowed = int(testlab.MaxOutage(away) / flowInterval)
			}
			for _, flow := range []*flow{there, back} {
				answered, lost := flow.end(t)
				t.Logf("%s: %d answers, %d lost", flow.name, answered, lost)
				if lost > allowed || answered < 100 {
					t.Errorf("%s: %d answers, %d lost, want at most %d lost", flow.name, answered, lost, allowed)
				}
			}
		})
		if !worked {
			t.Fatal("later restarts were skipped, because this one's pod may still exist")
		}
	}
}

// killDaemon kills railwrightd with SIGKILL and waits until kubelet has started it again.
func (n *node) killDaemon(t *testing.T) {
	t.Helper()
	old := n.daemon(t)
	if old == 0 {
		t.Fatalf("%s: railwrightd does not run", n.Name)
	}
	check(t, syscall.Kill(old, syscall.SIGKILL))
	await(t, "kubelet's restart of railwrightd", 30*time.Second, func() string {
		if now := n.daemon(t); now == 0 || now == old {
			return "none runs"
		}
		return ""
	})
}

// daemonAway checks that pods end without a running daemon, and that the daemon cleans up once it runs again. A pod
// that starts meanwhile waits, and an event gives the reason.
func (c *cluster) daemonAway(t *testing.T) {
	before := c.settled(t)
	pods := c.run(t,
		podSpec{Namespace: "tenant1", Name: "ends-1", Node: c.nodes[0].Name},
		podSpec{Namespace: "tenant1", Name: "ends-2", Node: c.nodes[1].Name})
	nodes := func(selector string) {
		c.kubectl(t, "-n", "railwright", "patch", "ds", "railwrightd", "--type=merge",
			"-p", `{"spec":{"template":{"spec":{"nodeSelector":`+selector+`}}}}`)
	}
	nodes(`{"railwright.test/none": "here"}`)
	awaitEvery(t, kubectlPause, "no daemon", 40*time.Second, func() string {
		return strings.TrimSpace(c.kubectl(t, "-n", "railwright", "get", "pods", "-l", "app.kubernetes.io/name=railwrightd", "-o", "name"))
	})

	start := time.Now()
	c.remove(t, pods...)
	t.Logf("without a daemon pods were gone %.1f s after their deletion was requested", time.Since(start).Seconds())
	if now := strings.Join(c.traces(t), "\n"); !strings.Contains(now, ": flow ") || !strings.Contains(now, "/tombstones/") {
		t.Errorf("flows and tombstones must remain while no daemon runs, or this test proves nothing:\n%s", now)
	}

	waiting := podSpec{Namespace: "tenant1", Name: "waits", Node: c.nodes[0].Name}
	c.apply(t, waiting.manifest(t))
	c.awaitEvent(t, waiting, "railwrightd")

	start = time.Now()
	nodes("null")
	c.rollOut(t)
	t.Logf("railwrightd was ready %.1f s after its DaemonSet was restored", time.Since(start).Seconds())
	pod := c.awaitReady(t, waiting)
	t.Logf("the pod that waited was Ready after %.1f s", time.Since(start).Seconds())
	c.remove(t, pod)
	c.awaitTraces(t, before)
}

// daemon returns the process ID of the node's railwrightd on this machine, or 0 if it does not run.
func (n *node) daemon(t *testing.T) int {
	t.Helper()
	network := func(pid string) string {
		link, _ := os.Readlink("/proc/" + pid + "/ns/net")
		return link
	}
	own := network(strconv.Itoa(n.first.Process.Pid))
	names, err := filepath.Glob("/proc/[0-9]*/comm")
	check(t, err)
	for _, path := range names {
		name, _ := os.ReadFile(path)
		pid := filepath.Base(filepath.Dir(path))
		if string(name) == "railwrightd\n" && network(pid) == own {
			return number(t, pid)
		}
	}
	return 0
}

// cutOff checks that an address goes to a pod of another tenant although a node cannot hear of it, and that no packet passes
// between the tenants: the node of the later pod knows both.
func (c *cluster) cutOff(t *testing.T) {
	before := c.settled(t)
	here, away := c.nodes[0], c.nodes[1]
	pods := c.run(t,
		podSpec{Namespace: "tenant1", Name: "leaves", Node: here.Name},
		podSpec{Namespace: "tenant1", Name: "stays", Node: away.Name})
	address, other := pods[0].Address("net1"), pods[1].Address("net1")
	c.control.IP(t, "link", "set", away.Name, "down")
	c.remove(t, pods[0])
	start := time.Now()
	pods[0] = c.run(t, podSpec{Namespace: "tenant2", Name: "next", Node: here.Name})[0]
	t.Logf("the pod was Ready after %.1f s while a node was away", time.Since(start).Seconds())
	if got := pods[0].Address("net1"); got != address {
		t.Errorf("pod has %s instead of %s, so the test proves nothing", got, address)
	}
	strangers := func(when string) {
		arrived := [2]int{pods[0].arrived(t), pods[1].arrived(t)}
		pods[1].ping(t, "net1", address, 20)
		pods[0].ping(t, "net1", other, 20)
		for i, pod := range pods {
			if count := pod.arrived(t) - arrived[i]; count != 0 {
				t.Errorf("%s: %d packets of the other tenant arrived at %s", when, count, pod.Name)
			}
		}
	}
	strangers("while the node is away")
	c.control.IP(t, "link", "set", away.Name, "up")
	c.control.IP(t, "route", "replace", away.pods().String(), "via", first(away.management()).String())
	strangers("when it is back")
	c.remove(t, pods...)
	c.awaitTraces(t, before)
}

// awaitEvent waits for an event of the pod that contains the reason for its waiting.
func (c *cluster) awaitEvent(t *testing.T, pod podSpec, want string) {
	t.Helper()
	awaitEvery(t, kubectlPause, "the event with the reason for the pod's waiting", 40*time.Second, func() string {
		output := c.kubectl(t, "-n", pod.Namespace, "get", "events", "--field-selector=involvedObject.name="+pod.Name, "-o",
			`jsonpath={range .items[?(@.type=="Warning")]}{.message}{"\n"}{end}`)
		if !strings.Contains(output, want) {
			return output
		}
		return ""
	})
}

func first[First, Second any](first First, _ Second) First { return first }
