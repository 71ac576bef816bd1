package announce

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"

	"railwright/node/internal/announce/frrconfig"
	"railwright/node/internal/plan"
	"railwright/node/testlab"
)

// fabric is a node with two rails, each with its own leaf, configured by frrconfig as an operator would.
type fabric struct {
	node     *testlab.Namespace
	frr      *testlab.FRR
	leaves   []*leaf
	rails    []plan.Rail
	settings Settings
}

type leaf struct {
	namespace *testlab.Namespace
	frr       *testlab.FRR
	kernel    *netlink.Handle
}

// combination is an FRR release with a backend.
type combination struct {
	name    string
	version testlab.FRRVersion
	backend frrconfig.Backend
	// all selects all steps rather than those in which FRR's release matters most.
	all bool
}

var combinations = []combination{
	{"FRR 10 kernel-table", testlab.FRR10, frrconfig.KernelTable, true},
	{"FRR 8 vty", testlab.FRR8, frrconfig.Vty, true},
	{"FRR 10 vty", testlab.FRR10, frrconfig.Vty, false},
}

const (
	nodeASN = 4200000101
	// leafLimit is the leaf's limit for each family. The announcer's cap is higher here, so that tests can exceed the
	// limit.
	leafLimit = 50
)

// newFabric builds rail 0 unnumbered and rail 1 with addresses. more names further daemons of FRR.
func newFabric(t *testing.T, version testlab.FRRVersion, backend frrconfig.Backend, more ...string) *fabric {
	t.Helper()
	began := time.Now()
	fabric := &fabric{node: testlab.NewNamespace(t, "node")}
	config := frrconfig.Node{Backend: backend, ASN: nodeASN, RouterID: netip.MustParseAddr("10.255.1.1")}
	for number := range 2 {
		rail := plan.Rail{Name: fmt.Sprintf("rail%d", number), Bridge: fmt.Sprintf("br-rail%d", number), Table: 7700 + number}
		prefixes := []netip.Prefix{
			netip.MustParsePrefix(fmt.Sprintf("10.%d.0.0/16", number)),
			netip.MustParsePrefix(fmt.Sprintf("fd00:0:%d::/48", number)),
		}
		leaf := &leaf{namespace: testlab.NewNamespace(t, fmt.Sprintf("leaf%d", number))}
		testlab.Cable(t, fabric.node, rail.Bridge, leaf.namespace, "swp1")
		var peer netip.Addr
		port := "swp1"
		if number == 1 {
			fabric.node.IP(t, "addr", "add", "192.0.2.1/31", "dev", rail.Bridge)
			fabric.node.IP(t, "addr", "add", "2001:db8:9::1/127", "dev", rail.Bridge, "nodad")
			leaf.namespace.IP(t, "addr", "add", "192.0.2.0/31", "dev", "swp1")
			leaf.namespace.IP(t, "addr", "add", "2001:db8:9::/127", "dev", "swp1", "nodad")
			peer, port = netip.MustParseAddr("192.0.2.0"), "192.0.2.1"
		}
		leaf.frr = testlab.StartFRR(t, leaf.namespace, version, frrconfig.Leaf{
			ASN: uint32(65000 + number), RouterID: netip.MustParseAddr(fmt.Sprintf("10.255.0.%d", number)),
			Rail: rail.Name, Prefixes: prefixes, MaxPrefixes: leafLimit, Ports: []string{port},
		}.Text(), more...)
		config.Rails = append(config.Rails, frrconfig.Rail{
			Name: rail.Name, Interface: rail.Bridge, Peer: peer, Table: rail.Table, Prefixes: prefixes,
		})
		fabric.settings.Rails = append(fabric.settings.Rails, RailSettings{
			Name: rail.Name, Bridge: rail.Bridge, Peer: peer, Table: rail.Table, Prefixes: prefixes, MaxPrefixes: 100,
		})
		fabric.rails = append(fabric.rails, rail)
		fabric.leaves = append(fabric.leaves, leaf)
	}
	fabric.frr = testlab.StartFRR(t, fabric.node, version, config.Text(), more...)
	fabric.settings.Socket = fabric.frr.Socket("bgpd")
	fabric.settings.ASN = nodeASN
	fabric.settings.SessionPoll = 300 * time.Millisecond
	for _, leaf := range fabric.leaves {
		leaf.kernel = kernelOf(t, leaf.namespace)
	}
	fabric.waitSessions(t)
	t.Logf("FRR %s of a node and two leaves was up after %.1f s", version, time.Since(began).Seconds())
	return fabric
}

// enableBFD adds BFD to the sessions, which must be up, and to the configurations that a restarted daemon reads. A BFD
// session that is configured before its unnumbered session was ever up may stay down: see frrconfig.
func (f *fabric) enableBFD(t *testing.T) {
	t.Helper()
	for _, leaf := range f.leaves {
		leaf.frr.Add(t, " neighbor NODES bfd", " neighbor NODES peer-group")
	}
	f.frr.Add(t, " neighbor LEAVES bfd", " neighbor LEAVES peer-group")
}

// waitBFD waits until BFD is up on all rails.
func (f *fabric) waitBFD(t *testing.T) {
	t.Helper()
	testlab.UntilRight(t, func() string {
		shown := f.frr.Show(t, "show bfd peers json")
		if strings.Count(shown, `"status":"up"`) == len(f.rails) {
			return ""
		}
		return "BFD is up on all rails: " + shown
	})
}

func (f *fabric) waitSessions(t *testing.T) {
	t.Helper()
	f.waitState(t, "Established")
}

// waitState waits until the state of each rail's session contains the text.
func (f *fabric) waitState(t *testing.T, text string) {
	t.Helper()
	reader := newReader(f.settings, nil)
	for _, rail := range f.rails {
		testlab.UntilRight(t, func() string {
			session, err := reader.Session(t.Context(), rail)
			if strings.Contains(session.State, text) {
				return ""
			}
			return fmt.Sprintf("session of %s: %+v, %v", rail.Name, session, err)
		})
	}
}

// announcer returns the backend's announcer in the node's namespace.
func (f *fabric) announcer(t *testing.T, backend frrconfig.Backend) Announcer {
	t.Helper()
	if backend == frrconfig.Vty {
		vty, err := NewVty(f.settings)
		if err != nil {
			t.Fatal(err)
		}
		return vty
	}
	kernel, err := newKernelTable(f.settings, namespaceOf(t, f.node))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = kernel.Close() })
	return kernel
}

// pods returns addresses of a rail's pods, half of them IPv6.
func pods(rail, from, count int) []netip.Prefix {
	var prefixes []netip.Prefix
	for number := from; number < from+count; number++ {
		text := fmt.Sprintf("10.%d.0.%d/32", rail, number/2+1)
		if number%2 == 1 {
			text = fmt.Sprintf("fd00:0:%d::%x/128", rail, number/2+1)
		}
		prefixes = append(prefixes, netip.MustParsePrefix(text))
	}
	slices.SortFunc(prefixes, netip.Prefix.Compare)
	return prefixes
}

// announcedPrefixes returns the BGP routes in the leaf's kernel, sorted.
func (l *leaf) announcedPrefixes(t testing.TB) []netip.Prefix {
	t.Helper()
	var prefixes []netip.Prefix
	for _, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		routes, err := l.kernel.RouteListFiltered(family, &netlink.Route{Protocol: 186}, netlink.RT_FILTER_PROTOCOL)
		if err != nil {
			t.Fatal(err)
		}
		for _, route := range routes {
			prefixes = append(prefixes, prefixOf(route))
		}
	}
	slices.SortFunc(prefixes, netip.Prefix.Compare)
	return slices.Compact(prefixes)
}

// expect waits until the leaf's kernel has exactly these routes.
func (l *leaf) expect(t *testing.T, want []netip.Prefix) {
	t.Helper()
	testlab.UntilRight(t, func() string {
		there := l.announcedPrefixes(t)
		if slices.Equal(there, want) {
			return ""
		}
		return fmt.Sprintf("routes of the leaf\nwant %v\ngot  %v", want, there)
	})
}

func (f *fabric) sync(t *testing.T, announcer Announcer, rail int, want []netip.Prefix) {
	t.Helper()
	if _, _, err := announcer.Sync(t.Context(), f.rails[rail], want); err != nil {
		t.Fatal(err)
	}
}

func (f *fabric) wait(t *testing.T, announcer Announcer, rail int, prefixes []netip.Prefix) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), testlab.Patience)
	defer cancel()
	if err := announcer.WaitAdvertised(ctx, f.rails[rail], prefixes); err != nil {
		t.Fatal(err)
	}
}

// awaitEvent waits for an event whose reason contains the text.
func awaitEvent(t *testing.T, events <-chan Event, want string) {
	t.Helper()
	late := time.After(testlab.Patience)
	var heard []string
	for {
		select {
		case event, open := <-events:
			if !open {
				t.Fatalf("events ended before %q; got %q", want, heard)
			}
			if strings.Contains(event.Reason, want) {
				return
			}
			heard = append(heard, event.Reason)
		case <-late:
			t.Fatalf("no event %q within %v; got %q", want, testlab.Patience, heard)
		}
	}
}

func namespaceOf(t *testing.T, namespace *testlab.Namespace) *netns.NsHandle {
	t.Helper()
	handle, err := netns.GetFromPath(namespace.Path())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = handle.Close() })
	return &handle
}

func kernelOf(t *testing.T, namespace *testlab.Namespace) *netlink.Handle {
	t.Helper()
	kernel, err := netlink.NewHandleAt(*namespaceOf(t, namespace))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(kernel.Close)
	return kernel
}
