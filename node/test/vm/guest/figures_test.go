//go:build vmguest

package guest

import (
	"errors"
	"net"
	"net/netip"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netns"

	"railwright/node/testlab"
)

// emulated is the context that is printed with every figure.
const emulated = "TCG, emulated: the guest's clock goes by 1 ns for each instruction"

const (
	rounds = 10
	// differentTTLs is also the number of flows, because a hop that decrements the TTL matches it exactly.
	firstTTL, differentTTLs = 20, 200
	flowLimit               = 50
)

// figures prints the cost of uncached flows and the time of their eviction. It asserts counts only, because times are
// emulated.
func figures(t *testing.T, node *node) {
	one := node.addPod(t, node.rails[0], 0, "team-a")
	near, far := node.addPod(t, node.rails[0], 1, "team-a"), node.addPod(t, node.rails[1], 0, "team-a")
	firstPacket(t, "VF to VF on one PF", one, near)
	firstPacket(t, "over two rails", one, far)
	for _, idle := range []time.Duration{10 * time.Second, time.Second} {
		node.missAfterIdle(t, one, near, idle)
	}
	vsctl(t, "remove", "Open_vSwitch", ".", "other_config", "max-idle")
	node.evictedByCount(t, one, near)
	deletePods(t, one, near, far)
}

// firstPacket prints the round trip of a first packet, which passes through ovs-vswitchd, and of the packets after it.
func firstPacket(t *testing.T, what string, from, to *pod) {
	t.Helper()
	var first, rest []float64
	for range rounds {
		appctl(t, "revalidator/purge")
		times := pings(t, from, to.addresses[0])
		first, rest = append(first, times[0]), append(rest, times[1:]...)
	}
	slices.Sort(first)
	slices.Sort(rest)
	t.Logf("figure: round trip %s: first packet (flow not cached, %d rounds) median %.2f ms, max %.2f ms; after it "+
		"median %.2f ms, max %.2f ms (%s)", what, rounds, first[rounds/2], first[rounds-1], rest[len(rest)/2],
		rest[len(rest)-1], emulated)
}

// pings returns the round trips of five pings in ms. All must be answered.
func pings(t *testing.T, from *pod, to netip.Addr) []float64 {
	t.Helper()
	output := from.Run(t, "ping", "-c", "5", "-i", "0.1", "-W", "3", to.String())
	var times []float64
	for line := range strings.Lines(output) {
		_, after, found := strings.Cut(line, " time=")
		if !found {
			continue
		}
		value, err := strconv.ParseFloat(strings.Fields(after)[0], 64)
		if err != nil {
			t.Fatal(err)
		}
		times = append(times, value)
	}
	if len(times) != 5 {
		t.Fatalf("%d of 5 pings were answered:\n%s", len(times), output)
	}
	return times
}

// dataFlows returns the number of cached datapath flows from one pod to another, and how many are offloaded.
func (n *node) dataFlows(t *testing.T, from, to *pod) (all, offloaded int) {
	t.Helper()
	for _, flow := range n.flows(t) {
		if flow.InPort == from.rail.representor(from.vf) && strings.Contains(flow.Match, "dst="+to.addresses[0].String()) {
			all++
			if flow.Offloaded {
				offloaded++
			}
		}
	}
	return all, offloaded
}

func (n *node) missAfterIdle(t *testing.T, from, to *pod, idle time.Duration) {
	t.Helper()
	vsctl(t, "set", "Open_vSwitch", ".", "other_config:max-idle="+strconv.FormatInt(idle.Milliseconds(), 10))
	busy := pings(t, from, to.addresses[0])
	last := time.Now()
	if all, _ := n.dataFlows(t, from, to); all == 0 && time.Since(last) < idle/2 {
		t.Error("no flow is cached right after the packets")
	}
	testlab.Eventually(t, "the idle flow is evicted", func() bool {
		all, _ := n.dataFlows(t, from, to)
		if all > 0 {
			time.Sleep(betweenLooks)
		}
		return all == 0
	})
	took := time.Since(last)
	again := pings(t, from, to.addresses[0])
	t.Logf("figure: max-idle %v: the flow was gone %.1f s after its last packet; round trip of the next packet %.2f ms, of "+
		"the last one after it %.2f ms, of the last one before it %.2f ms (%s)", idle, took.Seconds(), again[0],
		again[len(again)-1], busy[len(busy)-1], emulated)
}

// evictedByCount tests eviction by other_config:flow-limit. Above the limit ovs-vswitchd installs no flow, and its
// revalidator evicts idle ones early; ovs-vswitchd itself forwards packets without a flow. With the default limit
// packets that are sent a second time cause no misses. With a low limit all packets without a remaining flow miss.
func (n *node) evictedByCount(t *testing.T, from, to *pod) {
	t.Helper()
	vsctl(t, "set", "Open_vSwitch", ".", "other_config:max-idle=600000") // flows are evicted by count only
	missed := map[int]uint64{}
	for _, limit := range []int{0, flowLimit} {
		said := "default (200000)"
		if limit > 0 {
			said = strconv.Itoa(limit)
			vsctl(t, "set", "Open_vSwitch", ".", "other_config:flow-limit="+said)
		}
		appctl(t, "revalidator/purge")
		arrived := sendWithTTLs(t, from, to)
		all, offloaded := n.dataFlows(t, from, to)
		if limit == 0 && (all < differentTTLs || offloaded != all) {
			t.Errorf("with the default limit %d of %d flows are cached, %d of them in hardware", all, differentTTLs, offloaded)
		}
		before := misses(t)
		arrived += sendWithTTLs(t, from, to)
		missed[limit] = misses(t) - before
		if arrived != 2*differentTTLs {
			t.Errorf("flow-limit %d: %d of %d packets arrived", limit, arrived, 2*differentTTLs)
		}
		t.Logf("figure: %d packets with as many TTLs, flow-limit %s: %d flows are cached after them, %d in hardware; sent again "+
			"%d miss the datapath; %d of both arrived (%s)", differentTTLs, said, all, offloaded, missed[limit], arrived, emulated)
	}
	if missed[flowLimit] < differentTTLs-flowLimit || 4*missed[0] > missed[flowLimit] {
		t.Errorf("%d packets sent again cause %d misses with the default limit, %d with flow-limit %d", differentTTLs, missed[0], missed[flowLimit],
			flowLimit)
	}
	vsctl(t, "remove", "Open_vSwitch", ".", "other_config", "flow-limit")
	vsctl(t, "remove", "Open_vSwitch", ".", "other_config", "max-idle")
}

// sendWithTTLs sends one packet with each TTL and returns how many arrived.
func sendWithTTLs(t *testing.T, from, to *pod) int {
	t.Helper()
	receiver := socketWithin(t, to, func() (*net.UDPConn, error) {
		return net.ListenUDP("udp4", &net.UDPAddr{IP: to.addresses[0].AsSlice(), Port: 7000})
	})
	sender := socketWithin(t, from, func() (*net.UDPConn, error) {
		return net.DialUDP("udp4", nil, &net.UDPAddr{IP: to.addresses[0].AsSlice(), Port: 7000})
	})
	defer sender.Close()
	defer receiver.Close()
	raw, err := sender.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	arrived, buffer := 0, make([]byte, 64)
	for ttl := firstTTL; ttl < firstTTL+differentTTLs; ttl++ {
		var failed error
		err := raw.Control(func(socket uintptr) {
			failed = syscall.SetsockoptInt(int(socket), syscall.IPPROTO_IP, syscall.IP_TTL, ttl)
		})
		err = errors.Join(err, failed)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := sender.Write([]byte{byte(ttl)}); err != nil {
			t.Fatal(err)
		}
		_ = receiver.SetReadDeadline(time.Now().Add(5 * time.Second))
		if size, err := receiver.Read(buffer); err == nil && size == 1 && buffer[0] == byte(ttl) {
			arrived++
		}
	}
	return arrived
}

// socketWithin creates a socket in a pod's network namespace. The caller must close it.
func socketWithin(t *testing.T, pod *pod, socket func() (*net.UDPConn, error)) *net.UDPConn {
	t.Helper()
	type made struct {
		socket *net.UDPConn
		err    error
	}
	result := make(chan made)
	go func() {
		runtime.LockOSThread() // never unlocked, so that the thread ends and runs nothing else in the namespace
		handle, err := netns.GetFromPath(pod.Path())
		if err == nil {
			err = netns.Set(handle)
			_ = handle.Close()
		}
		if err != nil {
			result <- made{nil, err}
			return
		}
		opened, err := socket()
		result <- made{opened, err}
	}()
	opened := <-result
	if opened.err != nil {
		t.Fatal(opened.err)
	}
	return opened.socket
}
