package openvswitch

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"

	"railwright/node/internal/attachment"
	"railwright/node/internal/plan"
	"railwright/node/testlab"
)

const (
	bridgeName = "br-rail0"
	bridgeMAC  = "02:00:00:00:00:01"
)

// lab is a node with one rail, its leaf, and a pod of another node that is only an address behind the leaf.
type lab struct {
	host, leaf, remote *testlab.Namespace
	open               *testlab.OpenVSwitch
	client             *Client
	rail               plan.Rail
	pods               []*labPod
	tenants            plan.Tenants
}

type labPod struct {
	attachment.Attachment
	namespace *testlab.Namespace
}

func (l *labPod) ipv4() netip.Addr { return l.Addresses[0] }
func (l *labPod) ipv6() netip.Addr { return l.Addresses[1] }

var (
	remoteIPv4 = netip.MustParseAddr("10.2.0.2")
	remoteIPv6 = netip.MustParseAddr("fd00:2::2")
)

// newLab returns a lab with nothing programmed. The leaf routes the pods' addresses 10.1.0.0/16 and fd00:1::/64 to the
// node.
func newLab(t testing.TB) *lab {
	t.Helper()
	rail := &lab{rail: plan.Rail{Name: "rail0", Bridge: bridgeName, Uplink: "p0", Table: 1000}}
	rail.host, rail.leaf = testlab.NewNamespace(t, "host"), testlab.NewNamespace(t, "leaf")
	rail.remote = testlab.NewNamespace(t, "remote")
	for _, namespace := range []*testlab.Namespace{rail.host, rail.leaf, rail.remote} {
		namespace.TakeAddressesAtOnce(t)
	}
	rail.leaf.Run(t, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
	testlab.Cable(t, rail.leaf, "swp1", rail.host, "p0")
	testlab.Cable(t, rail.leaf, "swp2", rail.remote, "eth0")
	rail.open = testlab.StartOpenVSwitch(t, rail.host)
	rail.open.AddBridge(t, bridgeName, bridgeMAC)
	rail.open.AddPort(t, bridgeName, "p0")
	for _, test := range []struct {
		namespace *testlab.Namespace
		command   string
	}{
		{rail.host, "addr add 10.0.0.0/31 dev br-rail0"}, {rail.host, "addr add fd00:ffff::/127 dev br-rail0"},
		{rail.leaf, "addr add 10.0.0.1/31 dev swp1"}, {rail.leaf, "addr add fd00:ffff::1/127 dev swp1"},
		{rail.leaf, "addr add 10.2.0.1/16 dev swp2"}, {rail.leaf, "addr add fd00:2::1/64 dev swp2"},
		{rail.leaf, "route add 10.1.0.0/16 via 10.0.0.0"}, {rail.leaf, "route add fd00:1::/64 via fd00:ffff::"},
		{rail.remote, "addr add 10.2.0.2/16 dev eth0"}, {rail.remote, "addr add fd00:2::2/64 dev eth0"},
		{rail.remote, "route add default via 10.2.0.1"}, {rail.remote, "route add default via fd00:2::1"},
	} {
		test.namespace.IP(t, strings.Fields(test.command)...)
	}
	rail.client = rail.newClient(t)
	return rail
}

func (l *lab) settings(t testing.TB) Settings {
	return Settings{
		Database: l.open.DatabaseSocket(), Management: l.open.Folder, Netns: l.host.Path(),
		Rails: []RailSettings{{Rail: l.rail, Leaf: netip.MustParseAddr("10.0.0.1")}},
		Log:   slog.New(slog.NewTextHandler(testWriter{t}, nil)),
	}
}

func (l *lab) newClient(t testing.TB) *Client {
	t.Helper()
	client, err := New(t.Context(), l.settings(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

type testWriter struct{ t testing.TB }

func (tw testWriter) Write(line []byte) (int, error) {
	if testing.Verbose() {
		tw.t.Logf("%s", line)
	}
	return len(line), nil
}

// addPod adds a pod of the tenant with 10.1.0.N/16 and fd00:1::N/64, so that other pods seem to be on the same link.
// Its gateways are 10.1.0.1 and fe80::1.
func (l *lab) addPod(t testing.TB, n int, tenant string) *labPod {
	t.Helper()
	face := fmt.Sprintf("veth%d", n)
	mac := fmt.Sprintf("02:00:00:01:00:%02x", n)
	pod := &labPod{namespace: l.open.AddPod(t, bridgeName, face, mac)}
	for _, command := range []string{
		fmt.Sprintf("addr add 10.1.0.%d/16 dev eth0", n), fmt.Sprintf("addr add fd00:1::%x/64 dev eth0", n),
		"route add default via 10.1.0.1", "-6 route add default via fe80::1 dev eth0",
	} {
		pod.namespace.IP(t, strings.Fields(command)...)
	}
	pod.Attachment = newAttachment(n, tenant, face, mac)
	l.pods = append(l.pods, pod)
	return pod
}

func newAttachment(n int, tenant, face, mac string) attachment.Attachment {
	parsed, err := attachment.ParseMAC(mac)
	if err != nil {
		panic(err)
	}
	return attachment.Attachment{
		Key:  attachment.Key{Network: "rail0", ContainerID: fmt.Sprintf("c%d", n), Interface: "eth0"},
		Part: []attachment.Part{attachment.Flows}, Rail: "rail0", Tenant: tenant, HostInterface: face, MAC: parsed,
		Addresses: []netip.Addr{
			netip.AddrFrom4([4]byte{10, 1, byte(n >> 8), byte(n)}), netip.MustParseAddr(fmt.Sprintf("fd00:1::%x", n)),
		},
		Gateways: []netip.Addr{netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("fe80::1")},
		Number:   uint16(n), Added: time.Unix(int64(n), 0),
	}
}

// member adds addresses of a tenant.
func (l *lab) member(tenant string, addresses ...netip.Addr) {
	if l.tenants.Numbers == nil {
		l.tenants.Numbers = map[string]uint32{}
	}
	if l.tenants.Numbers[tenant] == 0 {
		l.tenants.Numbers[tenant] = uint32(len(l.tenants.Numbers) + 1)
	}
	for _, address := range addresses {
		l.tenants.Members = append(l.tenants.Members,
			plan.Member{Prefix: netip.PrefixFrom(address, address.BitLen()), Tenant: tenant})
	}
}

// flows returns the wanted flows. It waits until the leaf is known.
func (l *lab) flows(t testing.TB) []plan.Flow {
	t.Helper()
	var facts plan.Facts
	testlab.Eventually(t, "the leaf's MAC address and all ports", func() bool {
		var err error
		facts, err = l.client.Facts(t.Context(), l.rail)
		if err != nil {
			t.Log(err)
		}
		return facts.LeafMAC != attachment.MAC{} && len(facts.Ports) == 1+len(l.pods)
	})
	var attachments []attachment.Attachment
	for _, pod := range l.pods {
		attachments = append(attachments, pod.Attachment)
	}
	flows, left := plan.Flows(l.rail, facts, attachments, l.tenants)
	if len(left) > 0 {
		t.Fatalf("left without flows: %v", left)
	}
	return flows
}

// program programs the wanted flows. The host reaches the leaf first, as its BGP would, which already needs flows.
func (l *lab) program(t testing.TB) []plan.Flow {
	t.Helper()
	l.programHost(t)
	flows := l.flows(t)
	if _, err := l.client.Replace(t.Context(), bridgeName, flows); err != nil {
		t.Fatal(err)
	}
	return flows
}

// programHost lets only host and leaf communicate.
func (l *lab) programHost(t testing.TB) {
	t.Helper()
	facts := plan.Facts{}
	testlab.Eventually(t, "bridge is ready", func() (ready bool) {
		var err error
		facts, err = l.client.Facts(t.Context(), l.rail)
		return err == nil
	})
	flows, _ := plan.Flows(l.rail, facts, nil, plan.Tenants{})
	if _, err := l.client.Replace(t.Context(), bridgeName, flows); err != nil {
		t.Fatal(err)
	}
}

// readCounters returns the counters of ovs-vswitchd, including those that the datapath still holds.
func (l *lab) readCounters(t testing.TB) map[uint64]Count {
	t.Helper()
	l.open.Appctl(t, "revalidator/purge")
	counters, err := l.client.Counters(t.Context(), bridgeName)
	if err != nil {
		t.Fatal(err)
	}
	return counters
}

// nextEvent waits for an event that fits.
func nextEvent(t testing.TB, events <-chan Event, fits func(Event) bool) (Event, time.Duration) {
	t.Helper()
	start := time.Now()
	for {
		select {
		case event := <-events:
			t.Logf("after %v: %+v", time.Since(start).Round(time.Millisecond), event)
			if fits(event) {
				return event, time.Since(start)
			}
		case <-time.After(testlab.Patience - time.Since(start)):
			t.Fatalf("no such event within %v", testlab.Patience)
		}
	}
}

func flowsLost(event Event) bool { return event.FlowsLost && event.Bridge == bridgeName }

// ping pings from a pod and returns the TTL of a reply, or an error with ping's output.
func ping(namespace *testlab.Namespace, to netip.Addr) (string, error) {
	output, err := namespace.Try("ping", "-n", "-c", "3", "-i", "0.05", "-W", "3", to.String())
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, output)
	}
	_, rest, _ := strings.Cut(output, "ttl=")
	ttl, _, _ := strings.Cut(rest, " ")
	return ttl, nil
}

// neighbour returns the MAC address of a neighbour in the namespace's kernel.
func neighbour(t testing.TB, namespace *testlab.Namespace, face string, address netip.Addr) string {
	t.Helper()
	var found []struct{ LLAddr string }
	output := namespace.IP(t, "-j", "neigh", "show", "dev", face, address.String())
	if err := json.Unmarshal([]byte(output), &found); err != nil || len(found) != 1 {
		return ""
	}
	return found[0].LLAddr
}
