//go:build k8s

package k8s

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"railwright/node/testlab"
)

// pod is a Ready pod as reported by Kubernetes and Multus.
type pod struct {
	Namespace, Name string
	Node            *node
	// Interfaces are those of the GPU network by name: net1, net2.
	Interfaces map[string]podInterface
	// netns is the machine's path of the file of its network namespace.
	netns string
}

type podInterface struct {
	Network, MAC string
	Addresses    []netip.Addr
}

// Address returns the first address of an interface, which is IPv4 if it has one.
func (p *pod) Address(link string) netip.Addr { return p.Interfaces[link].Addresses[0] }

func (p *pod) String() string { return p.Namespace + "/" + p.Name }

// pod looks up a Ready pod.
func (c *cluster) pod(t *testing.T, namespace, name string) *pod {
	t.Helper()
	var object struct {
		Metadata struct {
			Annotations map[string]string `json:"annotations"`
		} `json:"metadata"`
		Spec struct {
			NodeName string `json:"nodeName"`
		} `json:"spec"`
		Status struct {
			PodIP string `json:"podIP"`
		} `json:"status"`
	}
	check(t, json.Unmarshal([]byte(c.kubectl(t, "get", "pod", "-n", namespace, name, "-o", "json")), &object))
	found := &pod{Namespace: namespace, Name: name, Interfaces: map[string]podInterface{}}
	for _, node := range c.nodes {
		if node.Name == object.Spec.NodeName {
			found.Node = node
		}
	}
	var networks []struct {
		Name, Interface, MAC string
		IPs                  []netip.Addr
	}
	const annotation = "k8s.v1.cni.cncf.io/network-status"
	check(t, json.Unmarshal([]byte(object.Metadata.Annotations[annotation]), &networks))
	for _, network := range networks {
		if strings.HasPrefix(network.Interface, "net") {
			found.Interfaces[network.Interface] = podInterface{network.Name, network.MAC, network.IPs}
		}
	}
	found.netns = found.Node.netnsOf(t, object.Status.PodIP)
	return found
}

// netnsOf returns the network namespace of the pod with this address in the default network.
func (n *node) netnsOf(t *testing.T, address string) string {
	t.Helper()
	files, err := filepath.Glob(n.path("/run/netns/*"))
	check(t, err)
	for _, file := range files {
		output, err := exec.Command("nsenter", "--net="+file, "ip", "-4", "-o", "address", "show").Output()
		if err == nil && strings.Contains(string(output), " "+address+"/") {
			return file
		}
	}
	t.Fatalf("%s: no network namespace has %s", n.Name, address)
	return ""
}

// Command returns a command of this machine that runs in the pod's network. It needs neither kubelet nor containerd.
func (p *pod) Command(argv ...string) *exec.Cmd {
	command := exec.Command("nsenter", append([]string{"--net=" + p.netns}, argv...)...)
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return command
}

func (p *pod) Run(t *testing.T, argv ...string) string {
	t.Helper()
	output, err := p.Command(argv...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %v\n%s", p, argv, err, output)
	}
	return string(output)
}

// arrived returns the number of echo requests of both families that the pod's kernel has received.
func (p *pod) arrived(t *testing.T) int {
	t.Helper()
	// /proc/net belongs to the reading process, which nsenter has put into the pod's network.
	counters := p.Run(t, "cat", "/proc/net/snmp", "/proc/net/snmp6")
	count := 0
	var names []string
	for line := range strings.Lines(counters) {
		fields := strings.Fields(line)
		switch {
		case fields[0] == "Icmp6InEchos":
			count += number(t, fields[1])
		case fields[0] == "Icmp:" && names == nil:
			names = fields
		case fields[0] == "Icmp:":
			for i, name := range names {
				if name == "InEchos" {
					count += number(t, fields[i])
				}
			}
		}
	}
	return count
}

var summary = regexp.MustCompile(`(\d+) packets transmitted, (\d+) received`)

// sums are the packets between pods. Worst is the minimum number of answers on a path.
type sums struct{ Paths, Sent, Arrived, Answered, Worst int }

// pace is the number of packets on a path, the pause between them and the time to wait for answers after the last.
type pace struct {
	count       int
	pause, wait string
}

var (
	insistent = pace{100, "0.02", "1"}
	// unhurried is so slow that all paths together send fewer packets in some seconds than a bridge port can queue.
	unhurried = pace{20, "0.2", "10"}
)

// exchange sends packets concurrently between all pairs of pods for which is returns true, from each interface to each
// address of the other pod.
func exchange(t *testing.T, pods []*pod, at pace, is func(from, to *pod) bool) sums {
	t.Helper()
	total := sums{Worst: at.count}
	for _, to := range pods {
		total.Arrived -= to.arrived(t)
	}
	var running []*exec.Cmd
	var outputs []*strings.Builder
	for _, from := range pods {
		for _, to := range pods {
			for link, far := range to.Interfaces {
				for _, address := range far.Addresses {
					if is(from, to) {
						command := from.Command(at.arguments(link, address)...)
						output := &strings.Builder{}
						command.Stdout, command.Stderr = output, output
						check(t, testlab.Start(command))
						running, outputs = append(running, command), append(outputs, output)
					}
				}
			}
		}
	}
	for i, command := range running {
		_ = command.Wait() // fails if nothing answers, which may be expected
		sent, answered := pingSummary(t, outputs[i].String())
		total.Paths++
		total.Sent, total.Answered = total.Sent+sent, total.Answered+answered
		total.Worst = min(total.Worst, answered)
	}
	for _, to := range pods {
		total.Arrived += to.arrived(t)
	}
	return total
}

// arguments returns the arguments of ping for this pace.
func (p pace) arguments(link string, to netip.Addr, more ...string) []string {
	arguments := []string{"ping", "-n", "-q", "-I", link, "-c", strconv.Itoa(p.count), "-i", p.pause, "-W", p.wait}
	return append(append(arguments, more...), to.String())
}

func pingSummary(t *testing.T, output string) (sent, answered int) {
	t.Helper()
	found := summary.FindStringSubmatch(output)
	if found == nil {
		t.Fatalf("ping: %s", output)
	}
	return number(t, found[1]), number(t, found[2])
}

// ping pings an address through an interface of the pod. It returns the numbers of echo requests and of answers.
func (p *pod) ping(t *testing.T, link string, to netip.Addr, count int, more ...string) (sent, answered int) {
	t.Helper()
	// ping fails if nothing answers, which may be expected.
	output, _ := p.Command(pace{count, insistent.pause, insistent.wait}.arguments(link, to, more...)...).CombinedOutput()
	return pingSummary(t, string(output))
}

// flow is a stream of echo requests that continues until end is called.
type flow struct {
	name    string
	command *exec.Cmd
	log     *os.File
}

const flowInterval = 10 * time.Millisecond

// startFlow starts a flow from one pod to another.
func (c *cluster) startFlow(t *testing.T, from *pod, link string, to *pod) *flow {
	t.Helper()
	log, err := os.CreateTemp(c.folder, "flow-")
	check(t, err)
	flow := &flow{name: fmt.Sprintf("%s to %s on %s", from, to, link), log: log}
	flow.command = from.Command("ping", "-n", "-I", link, "-i", fmt.Sprint(flowInterval.Seconds()), to.Address(link).String())
	flow.command.Stdout = log
	check(t, testlab.Start(flow.command))
	ended := sync.OnceFunc(func() {
		_ = flow.command.Process.Kill()
		_ = flow.command.Wait()
	})
	t.Cleanup(ended)
	return flow
}

var answer = regexp.MustCompile(`bytes from .* icmp_seq=(\d+)`)

// end stops the flow and returns the number of answers, and of requests before the last answer that were not answered.
func (f *flow) end(t *testing.T) (answered, lost int) {
	t.Helper()
	check(t, f.command.Process.Signal(syscall.SIGINT))
	_ = f.command.Wait()
	output, err := os.ReadFile(f.log.Name())
	check(t, err)
	last := 0
	seen := map[int]bool{}
	for _, found := range answer.FindAllStringSubmatch(string(output), -1) {
		sequence := number(t, found[1])
		seen[sequence] = true
		last = max(last, sequence)
	}
	return len(seen), last - len(seen)
}

func number(t *testing.T, text string) int {
	t.Helper()
	value, err := strconv.Atoi(text)
	check(t, err)
	return value
}
