package announce

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"railwright/node/internal/announce/frrconfig"
	"railwright/node/testlab"
)

// reportsForeignChanges checks that other programs' routes stay, and that their changes to ours are reported.
func reportsForeignChanges(t *testing.T, bench *bench) {
	prefixes := pods(0, 0, 4)
	bench.sync(t, bench, 0, prefixes)
	bgp := func(lines ...string) {
		bench.frr.Show(t, append([]string{"configure terminal", fmt.Sprintf("router bgp %d", nodeASN),
			"address-family ipv4 unicast"}, lines...)...)
	}
	theirs := func() string { return bench.frr.Show(t, "show running-config") }
	if bench.backend == frrconfig.KernelTable {
		bench.node.IP(t, "route", "add", "blackhole", "10.0.3.3/32", "table", "7700", "proto", "static")
		bench.node.IP(t, "route", "add", "192.0.2.128/25", "via", "192.0.2.0", "table", "7700", "proto", "99")
		bench.node.IP(t, "route", "del", "blackhole", "10.0.0.1/32", "table", "7700")
		theirs = func() string { return bench.node.IP(t, "route", "show", "table", "7700") }
	} else {
		bgp("network 10.0.3.3/32", "network 192.0.2.128/25 route-map railwright-nothing")
		bgp("no network 10.0.0.1/32 route-map railwright-rail0")
	}
	awaitEvent(t, bench.events, "another program deleted 10.0.0.1/32")
	if added, _, err := bench.Sync(t.Context(), bench.rails[0], prefixes); err != nil || added != 1 {
		t.Errorf("added %d, %v", added, err)
	}
	if bench.backend == frrconfig.KernelTable {
		bench.node.IP(t, "route", "add", "blackhole", "10.0.0.250/32", "table", "7700", "proto", "114")
	} else {
		bgp("network 10.0.0.250/32 route-map railwright-rail0")
	}
	awaitEvent(t, bench.events, "another program added 10.0.0.250/32")
	// An address that another program announces is an error that names it, and does not block the others.
	taken := netip.MustParsePrefix("10.0.3.3/32")
	_, _, err := bench.Sync(t.Context(), bench.rails[0], append(pods(0, 0, 6), taken))
	if err == nil || !strings.Contains(err.Error(), "10.0.3.3/32") || !strings.Contains(err.Error(), "not") {
		t.Errorf("foreign address: %v", err)
	}
	if listed, err := bench.List(t.Context(), bench.rails[0]); err != nil || !slices.Equal(listed, pods(0, 0, 6)) {
		t.Errorf("lists %v, %v", listed, err)
	}
	bench.sync(t, bench, 0, nil)
	for _, line := range []string{"10.0.3.3", "192.0.2.128/25"} {
		if !strings.Contains(theirs(), line) {
			t.Errorf("foreign %s is gone:\n%s", line, theirs())
		}
	}
	if bench.backend == frrconfig.KernelTable {
		bench.node.IP(t, "route", "flush", "table", "7700")
	} else {
		bgp("no network 10.0.3.3/32", "no network 192.0.2.128/25 route-map railwright-nothing")
	}
}

// bgpdHangs checks that calls fail in bounded time, and that the kernel's table can still be written.
func bgpdHangs(t *testing.T, bench *bench) {
	bench.frr.Freeze(t, "bgpd")
	thawed := false
	defer func() {
		if !thawed {
			bench.frr.Thaw(t, "bgpd")
		}
	}()
	// bgpd hangs until this is done: a call that waited for it would hang the test.
	bounded := func(name string, call func() error, fails bool) {
		began := time.Now()
		err := call()
		if (err != nil) != fails {
			t.Errorf("%s: %v", name, err)
		}
		if fails {
			t.Logf("%s after %.2f s: %v", name, time.Since(began).Seconds(), err)
		}
	}
	prefixes := pods(0, 0, 2)
	bounded("Sync", func() error {
		_, _, err := bench.Sync(t.Context(), bench.rails[0], prefixes)
		return err
	}, bench.backend == frrconfig.Vty)
	bounded("WaitAdvertised", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		return bench.WaitAdvertised(ctx, bench.rails[0], prefixes)
	}, true)
	bounded("Session", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		_, err := bench.Session(ctx, bench.rails[0])
		return err
	}, true)
	awaitEvent(t, bench.events, "bgpd stopped")
	bench.frr.Thaw(t, "bgpd")
	thawed = true
	awaitEvent(t, bench.events, "bgpd is back")
	bench.sync(t, bench, 0, prefixes)
	bench.wait(t, bench, 0, prefixes)
}

// keepSyncing syncs on each event, as the reconciler does.
func keepSyncing(t *testing.T, bench *bench, want [][]netip.Prefix) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-ctx.Done():
				return
			case event := <-bench.events:
				for rail, name := range bench.rails {
					_, _, err := bench.Sync(ctx, name, want[rail])
					t.Logf("%q: %v", event.Reason, err)
				}
			}
		}
	}()
	return func() { cancel(); <-ended }
}

// fewest polls the number of routes at the rail's leaf; stop returns the minimum.
func fewest(t *testing.T, leaf *leaf) (stop func() int) {
	least, end, ended := len(leaf.announcedPrefixes(t)), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			case <-time.After(2 * time.Millisecond):
				least = min(least, len(leaf.announcedPrefixes(t)))
			}
		}
	}()
	return func() int { close(end); <-ended; return least }
}

// afterRestart checks that after a restart all routes return, by themselves or by a Sync on an event, and if graceful
// is true that none left the leaf's kernel meanwhile.
func afterRestart(t *testing.T, bench *bench, graceful bool, restart func()) {
	want := [][]netip.Prefix{pods(0, 0, 40), pods(1, 0, 40)}
	for rail := range bench.rails {
		bench.sync(t, bench, rail, want[rail])
		bench.leaves[rail].expect(t, want[rail])
	}
	stopSync := keepSyncing(t, bench, want)
	defer stopSync()
	var counts []func() int
	for _, leaf := range bench.leaves {
		counts = append(counts, fewest(t, leaf))
	}
	restart()
	began := time.Now()
	bench.waitSessions(t)
	for rail, leaf := range bench.leaves {
		bench.wait(t, bench, rail, want[rail])
		leaf.expect(t, want[rail])
		// The leaf drops stale routes that the node did not announce again once the node sends its end of routes.
		testlab.Eventually(t, "no stale route at the leaf", func() bool {
			return !strings.Contains(leaf.frr.Show(t, "show bgp ipv4 unicast"), "S>") && !strings.Contains(leaf.frr.Show(t,
				"show bgp ipv6 unicast"), "S>")
		})
		leaf.expect(t, want[rail])
	}
	t.Logf("all routes were back %.2f s after the start", time.Since(began).Seconds())
	for rail, stop := range counts {
		if least := stop(); graceful && least < len(want[rail]) {
			t.Errorf("leaf of rail %d had only %d of %d routes meanwhile", rail, least, len(want[rail]))
		}
	}
}

func bgpdRestarts(t *testing.T, bench *bench) {
	afterRestart(t, bench, true, func() {
		bench.frr.Kill(t, "bgpd")
		time.Sleep(500 * time.Millisecond) // FRR's watchdog takes at least this long.
		bench.frr.Start(t, "bgpd")
	})
}

func zebraRestarts(t *testing.T, bench *bench) {
	afterRestart(t, bench, true, func() {
		bench.frr.Kill(t, "zebra")
		bench.frr.Start(t, "zebra")
	})
}

// zebraForgets withdraws routes while zebra is down.
func zebraForgets(t *testing.T, bench *bench) {
	if bench.backend != frrconfig.KernelTable {
		t.Skip("zebra is not involved in network lines")
	}
	bench.sync(t, bench, 0, pods(0, 0, 6))
	bench.leaves[0].expect(t, pods(0, 0, 6))
	bench.frr.Kill(t, "zebra")
	bench.sync(t, bench, 0, pods(0, 2, 4))
	bench.frr.Start(t, "zebra")
	awaitEvent(t, bench.events, "bgpd still announced withdrawn 10.0.0.1/32 and 1 more on rail rail0: withdrew it again")
	bench.leaves[0].expect(t, pods(0, 2, 4))
	if listed, err := bench.List(t.Context(), bench.rails[0]); err != nil || !slices.Equal(listed, pods(0, 2, 4)) {
		t.Errorf("lists %v, %v", listed, err)
	}
}

// bgpdForgets withdraws a route in the first second of a session, which FRR 8.4 forgets in most runs.
func bgpdForgets(t *testing.T, bench *bench) {
	bench.frr.Kill(t, "bgpd")
	bench.frr.Start(t, "bgpd")
	bench.waitSessions(t)
	bench.sync(t, bench, 0, pods(0, 0, 2))
	bench.leaves[0].expect(t, pods(0, 0, 2))
	bench.sync(t, bench, 0, nil)
	bench.leaves[0].expect(t, nil)
}

func leafRestarts(t *testing.T, bench *bench) {
	afterRestart(t, bench, false, func() {
		bench.leaves[0].frr.Kill(t, "bgpd")
		bench.leaves[0].frr.Start(t, "bgpd")
	})
}

// leafLimitReached sets our cap above the leaf's limit; the session's state reports the cause.
func leafLimitReached(t *testing.T, bench *bench) {
	bench.sync(t, bench, 1, pods(1, 0, 160))
	var session Session
	testlab.UntilRight(t, func() string {
		session, _ = bench.Session(t.Context(), bench.rails[1])
		if strings.Contains(session.State, "Maximum Number of Prefixes") {
			return ""
		}
		return fmt.Sprintf("session has not ended: %+v", session)
	})
	if session.Established {
		t.Errorf("%+v", session)
	}
	bench.expectReason(t, 1, "10.1.0.1/32", "session with 192.0.2.0 is", "Maximum Number of Prefixes")
}

// leafKeepsStaleRoutes checks that routes that the leaf keeps by graceful restart while bgpd is down do not count as
// withdrawn. They do once the leaf has received all of bgpd's routes.
func leafKeepsStaleRoutes(t *testing.T, bench *bench) {
	first, other := pods(0, 0, 2), pods(0, 2, 2)
	bench.sync(t, bench, 0, append(slices.Clone(first), other...))
	bench.wait(t, bench, 0, first)
	bench.wait(t, bench, 0, other)
	withdrawn := func(prefixes []netip.Prefix) error {
		ctx, cancel := context.WithTimeout(t.Context(), testlab.Patience)
		defer cancel()
		return bench.WaitWithdrawn(ctx, bench.rails[0], prefixes)
	}
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := bench.WaitWithdrawn(short, bench.rails[0], first); err == nil {
		t.Error("announced prefixes count as withdrawn")
	}
	bench.sync(t, bench, 0, other)
	if err := withdrawn(first); err != nil {
		t.Errorf("withdrawn prefixes: %v", err)
	}
	bench.leaves[0].expect(t, other)

	bench.frr.Kill(t, "bgpd")
	awaitEvent(t, bench.events, "bgpd stopped")
	if bench.backend == frrconfig.KernelTable {
		bench.sync(t, bench, 0, nil)
	}
	if err := withdrawn(other); err == nil {
		t.Error("routes count as withdrawn while bgpd is down")
	}
	if there := bench.leaves[0].announcedPrefixes(t); !slices.Equal(there, other) {
		t.Errorf("leaf did not keep its routes: %v", there)
	}
	bench.frr.Start(t, "bgpd")
	testlab.Eventually(t, "bgpd accepts a sync", func() bool {
		_, _, err := bench.Sync(t.Context(), bench.rails[0], nil)
		return err == nil
	})
	testlab.Eventually(t, "withdrawal of the routes", func() bool { return withdrawn(other) == nil })
	bench.leaves[0].expect(t, nil)
}
