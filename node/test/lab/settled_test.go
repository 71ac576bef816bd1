package lab

import (
	"fmt"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	nodev1 "railwright/node/api/v1"
	"railwright/node/internal/tenants"
	"railwright/node/internal/tenants/table"
	"railwright/node/testlab"
)

// patience is the time limit for the actual state to equal the desired state after a fault. The time taken is reported,
// not asserted.
const patience = testlab.Patience

// mustSettle waits until the whole fabric has exactly the state that the live attachments need.
func (f *fabric) mustSettle(t testing.TB) time.Duration {
	t.Helper()
	began := time.Now()
	var left []string
	for first := true; first || time.Since(began) < patience; first = false {
		looked := time.Since(began)
		left = f.differences(t)
		if len(left) == 0 {
			return looked
		}
		time.Sleep(min(max(50*time.Millisecond, time.Since(began)-looked), time.Second))
	}
	t.Fatalf("differences remain %v after the fault's end:\n%s", patience, strings.Join(left, "\n"))
	return 0
}

// differences returns the differences between the desired and the actual state of the fabric.
func (f *fabric) differences(t testing.TB) []string {
	t.Helper()
	expected := map[netip.Addr]bool{}
	live := f.live.list()
	for _, pod := range live {
		for _, address := range pod.addresses() {
			expected[address] = true
		}
	}
	var left []string
	compare := func(where string, found, want map[netip.Addr]bool) {
		for address := range want {
			if !found[address] {
				left = append(left, fmt.Sprintf("%s: %s is missing", where, address))
			}
		}
		for address := range found {
			if !want[address] {
				left = append(left, fmt.Sprintf("%s: %s is too much", where, address))
			}
		}
	}
	for _, leaf := range f.leaves {
		compare("routes of the leaf of "+railName(leaf.Rail), leaf.Routes(), expected)
	}
	compare("claims", f.claims(t), expected)
	for _, node := range f.nodes {
		own := map[netip.Addr]bool{}
		for _, pod := range live {
			if pod.pod.node == node {
				own[pod.ipv4], own[pod.ipv6] = true, true
			}
		}
		compare("IPAM of "+node.Name(), node.assigned(), own)
		left = append(left, node.differences(t, live, expected, own)...)
	}
	return left
}

// claims returns the addresses that any node claims in the tenant directory.
func (f *fabric) claims(t testing.TB) map[netip.Addr]bool {
	t.Helper()
	found := map[netip.Addr]bool{}
	held, err := table.Open(filepath.Join(f.folder, "tenants"))
	if err != nil {
		t.Fatal(err)
	}
	list, err := held.List(t.Context(), tenants.KindClaim, "")
	if err != nil {
		t.Error(err)
	}
	for _, object := range list.Objects {
		claim, err := tenants.Decode[tenants.ClaimSpec](object)
		if err != nil {
			t.Error(err)
		}
		found[claim.Address] = true
	}
	return found
}

// assigned returns the addresses assigned by the node's IPAM.
func (nd *node) assigned() map[netip.Addr]bool {
	found := map[netip.Addr]bool{}
	files, _ := filepath.Glob(nd.Path("ipam/*/*"))
	for _, file := range files {
		if address, err := netip.ParseAddr(filepath.Base(file)); err == nil {
			found[address] = true
		}
	}
	return found
}

var addressInFlow = regexp.MustCompile(`(?:nw_src|nw_dst|ipv6_src|ipv6_dst|arp_spa|nd_target)=([0-9a-f.:]+)[, /]`)

// differences returns the differences on one node: in the daemon's own view, ports, flows, records, tombstones and
// routes.
func (nd *node) differences(t testing.TB, live []*attached, expected, own map[netip.Addr]bool) []string {
	t.Helper()
	var left []string
	tell := func(format string, values ...any) {
		left = append(left, nd.Name()+": "+fmt.Sprintf(format, values...))
	}
	ports := []map[string]bool{}
	for rail := range rails {
		ports = append(ports, map[string]bool{uplinkOf(rail): true})
	}
	for _, pod := range live {
		if pod.pod.node == nd {
			ports[pod.rail][pod.port] = true
		}
	}
	for rail := range rails {
		found := strings.Fields(nd.OVS.Vsctl(t, "list-ports", bridgeOf(rail)))
		if len(found) != len(ports[rail]) || slices.ContainsFunc(found, func(port string) bool { return !ports[rail][port] }) {
			tell("ports %v, want %v", found, ports[rail])
		}
		output := nd.OVS.Ofctl(t, bridgeOf(rail), "dump-flows")
		for _, match := range addressInFlow.FindAllStringSubmatch(output, -1) {
			address, err := netip.ParseAddr(match[1])
			if err == nil && inPodPrefix(address) && !expected[address] && !isGateway(address) {
				tell("a flow of %s names %s", bridgeOf(rail), address)
				break
			}
		}
		if count := nd.announcedRoutes(t, rail); nd.daemonRoutes() && count != 2*(len(ports[rail])-1) {
			tell("%d routes in table %d, want %d", count, tableOf(rail), 2*(len(ports[rail])-1))
		}
	}
	for folder, want := range map[string]int{"state/attachments/*.json": len(own) / 2, "state/tombstones/*.json": 0} {
		if files, _ := filepath.Glob(nd.Path(folder)); len(files) != want {
			tell("%d files %s, want %d", len(files), folder, want)
		}
	}
	return append(left, nd.listProblems(t, len(own)/2)...)
}

func (nd *node) daemonRoutes() bool { return nd.fabric.Backend == "kernel-table" }

// announcedRoutes returns the number of routes in a rail's kernel table.
func (nd *node) announcedRoutes(t testing.TB, rail int) int {
	t.Helper()
	count := 0
	for _, family := range []string{"-4", "-6"} {
		routes, _ := nd.Host.Try("ip", family, "route", "show", "table", fmt.Sprint(tableOf(rail)))
		count += strings.Count(routes, "blackhole")
	}
	return count
}

// listProblems returns the problems of the daemon's list: a wrong number of attachments, and attachments that lack
// flows or are not advertised.
func (nd *node) listProblems(t testing.TB, want int) []string {
	t.Helper()
	ctx, cancel := boundedContext(t)
	defer cancel()
	reply, err := nd.Client.List(ctx, &nodev1.ListRequest{})
	if err != nil {
		return []string{fmt.Sprintf("%s: List: %v", nd.Name(), err)}
	}
	var left []string
	if len(reply.GetAttached()) != want {
		left = append(left, fmt.Sprintf("%s: %d attachments are listed, want %d", nd.Name(), len(reply.GetAttached()), want))
	}
	for _, attached := range reply.GetAttached() {
		if attached.GetFlowsWanted() == 0 || attached.GetFlowsInstalled() != attached.GetFlowsWanted() || !attached.GetAdvertised() {
			left = append(left, fmt.Sprintf("%s: %v", nd.Name(), attached))
		}
	}
	return left
}

func inPodPrefix(address netip.Addr) bool {
	for rail := range rails {
		for _, prefix := range railPrefixes(rail) {
			if prefix.Contains(address) {
				return true
			}
		}
	}
	return false
}

// isGateway reports whether the address is a node's gateway, the first address of its range.
func isGateway(address netip.Addr) bool {
	return strings.HasSuffix(address.String(), ":1") || strings.HasSuffix(address.String(), ".1")
}
