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

// hearsOfStrangers: what somebody else puts beside our routes stays, what he does to ours is told.
func hearsOfStrangers(t *testing.T, bench *bench) {
	own := pods(0, 0, 4)
	bench.sync(t, bench, 0, own)
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
	event(t, bench.events, "somebody deleted 10.0.0.1/32")
	if added, _, err := bench.Sync(t.Context(), bench.rails[0], own); err != nil || added != 1 {
		t.Errorf("added %d, %v", added, err)
	}
	if bench.backend == frrconfig.KernelTable {
		bench.node.IP(t, "route", "add", "blackhole", "10.0.0.250/32", "table", "7700", "proto", "114")
	} else {
		bgp("network 10.0.0.250/32 route-map railwright-rail0")
	}
	event(t, bench.events, "somebody added 10.0.0.250/32")
	// An address that a stranger announces already is an error that names it, and does not keep the others from their turn.
	taken := netip.MustParsePrefix("10.0.3.3/32")
	_, _, err := bench.Sync(t.Context(), bench.rails[0], append(pods(0, 0, 6), taken))
	if err == nil || !strings.Contains(err.Error(), "10.0.3.3/32") || !strings.Contains(err.Error(), "not") {
		t.Errorf("a stranger's address: %v", err)
	}
	if listed, err := bench.List(t.Context(), bench.rails[0]); err != nil || !slices.Equal(listed, pods(0, 0, 6)) {
		t.Errorf("lists %v, %v", listed, err)
	}
	bench.sync(t, bench, 0, nil)
	for _, line := range []string{"10.0.3.3", "192.0.2.128/25"} {
		if !strings.Contains(theirs(), line) {
			t.Errorf("the stranger's %s is gone:\n%s", line, theirs())
		}
	}
	if bench.backend == frrconfig.KernelTable {
		bench.node.IP(t, "route", "flush", "table", "7700")
	} else {
		bgp("no network 10.0.3.3/32", "no network 192.0.2.128/25 route-map railwright-nothing")
	}
}

// bgpdHangs: whoever asks it has an error in bounded time; the kernel's table can be written all the same.
func bgpdHangs(t *testing.T, bench *bench) {
	bench.frr.Freeze(t, "bgpd")
	thawed := false
	defer func() {
		if !thawed {
			bench.frr.Thaw(t, "bgpd")
		}
	}()
	// bgpd hangs until this is through: whoever waited for it would wait for ever.
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
	own := pods(0, 0, 2)
	bounded("Sync", func() error {
		_, _, err := bench.Sync(t.Context(), bench.rails[0], own)
		return err
	}, bench.backend == frrconfig.Vty)
	bounded("WaitAdvertised", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		return bench.WaitAdvertised(ctx, bench.rails[0], own)
	}, true)
	bounded("Session", func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
		defer cancel()
		_, err := bench.Session(ctx, bench.rails[0])
		return err
	}, true)
	event(t, bench.events, "bgpd has gone")
	bench.frr.Thaw(t, "bgpd")
	thawed = true
	event(t, bench.events, "bgpd is back")
	bench.sync(t, bench, 0, own)
	bench.wait(t, bench, 0, own)
}

// keepSyncing as the reconciler does: at once on each event.
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
					t.Logf("%q: %v", event.Why, err)
				}
			}
		}
	}()
	return func() { cancel(); <-ended }
}

// fewest counts the routes at the rail's leaf all the time, and gives the least.
func fewest(t *testing.T, leaf *leaf) (stop func() int) {
	least, end, ended := len(leaf.announced(t)), make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-end:
				return
			case <-time.After(2 * time.Millisecond):
				least = min(least, len(leaf.announced(t)))
			}
		}
	}()
	return func() int { close(end); <-ended; return least }
}

// afterRestart of something: all routes come back by themselves or by a Sync on an event, and none left the leaf's kernel
// meanwhile where graceful is true.
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
		// A leaf drops what it kept for the node, and was not told anew, when the node says that it has told all.
		testlab.Eventually(t, "no stale route at the leaf", func() bool {
			return !strings.Contains(leaf.frr.Show(t, "show bgp ipv4 unicast"), "S>") && !strings.Contains(leaf.frr.Show(t,
				"show bgp ipv6 unicast"), "S>")
		})
		leaf.expect(t, want[rail])
	}
	t.Logf("all as before %.2f s after the start", time.Since(began).Seconds())
	for rail, stop := range counts {
		if least := stop(); graceful && least < len(want[rail]) {
			t.Errorf("leaf of rail %d had only %d of %d routes meanwhile", rail, least, len(want[rail]))
		}
	}
}

func bgpdStarts(t *testing.T, bench *bench) {
	afterRestart(t, bench, true, func() {
		bench.frr.Kill(t, "bgpd")
		time.Sleep(500 * time.Millisecond) // FRR's watchdog is not faster.
		bench.frr.Start(t, "bgpd")
	})
}

func zebraStarts(t *testing.T, bench *bench) {
	afterRestart(t, bench, true, func() {
		bench.frr.Kill(t, "zebra")
		bench.frr.Start(t, "zebra")
	})
}

// zebraForgets what was withdrawn while it was away.
func zebraForgets(t *testing.T, bench *bench) {
	if bench.backend != frrconfig.KernelTable {
		t.Skip("zebra has no part in network lines")
	}
	bench.sync(t, bench, 0, pods(0, 0, 6))
	bench.leaves[0].expect(t, pods(0, 0, 6))
	bench.frr.Kill(t, "zebra")
	bench.sync(t, bench, 0, pods(0, 2, 4))
	bench.frr.Start(t, "zebra")
	event(t, bench.events, "bgpd still announced 10.0.0.1/32 and 1 more on rail rail0 though it was withdrawn: told it again")
	bench.leaves[0].expect(t, pods(0, 2, 4))
	if listed, err := bench.List(t.Context(), bench.rails[0]); err != nil || !slices.Equal(listed, pods(0, 2, 4)) {
		t.Errorf("lists %v, %v", listed, err)
	}
}

// bgpdForgets what is withdrawn in the first second of a session: FRR 8.4 does, in most runs.
func bgpdForgets(t *testing.T, bench *bench) {
	bench.frr.Kill(t, "bgpd")
	bench.frr.Start(t, "bgpd")
	bench.waitSessions(t)
	bench.sync(t, bench, 0, pods(0, 0, 2))
	bench.leaves[0].expect(t, pods(0, 0, 2))
	bench.sync(t, bench, 0, nil)
	bench.leaves[0].expect(t, nil)
}

func leafStarts(t *testing.T, bench *bench) {
	afterRestart(t, bench, false, func() {
		bench.leaves[0].frr.Kill(t, "bgpd")
		bench.leaves[0].frr.Start(t, "bgpd")
	})
}

// leafHasEnough: our cap is wrongly above the leaf's limit; the session's state says what happened.
func leafHasEnough(t *testing.T, bench *bench) {
	bench.sync(t, bench, 1, pods(1, 0, 160))
	var session Session
	testlab.UntilRight(t, func() string {
		session, _ = bench.Session(t.Context(), bench.rails[1])
		if strings.Contains(session.State, "Maximum Number of Prefixes") {
			return ""
		}
		return fmt.Sprintf("the session has not ended: %+v", session)
	})
	if session.Established {
		t.Errorf("%+v", session)
	}
	bench.mustSay(t, 1, "10.1.0.1/32", "the session with 192.0.2.0 is", "Maximum Number of Prefixes")
}

// leafKeeps what it heard, by graceful restart, while bgpd is away: that nobody asks for the routes any more is no
// withdrawal. It is one once the leaf has heard all that bgpd has.
func leafKeeps(t *testing.T, bench *bench) {
	own, other := pods(0, 0, 2), pods(0, 2, 2)
	bench.sync(t, bench, 0, append(slices.Clone(own), other...))
	bench.wait(t, bench, 0, own)
	bench.wait(t, bench, 0, other)
	withdrawn := func(prefixes []netip.Prefix) error {
		ctx, cancel := context.WithTimeout(t.Context(), testlab.Patience)
		defer cancel()
		return bench.WaitWithdrawn(ctx, bench.rails[0], prefixes)
	}
	short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := bench.WaitWithdrawn(short, bench.rails[0], own); err == nil {
		t.Error("what is announced counts as withdrawn")
	}
	bench.sync(t, bench, 0, other)
	if err := withdrawn(own); err != nil {
		t.Errorf("what the leaf was told to withdraw: %v", err)
	}
	bench.leaves[0].expect(t, other)

	bench.frr.Kill(t, "bgpd")
	event(t, bench.events, "bgpd has gone")
	if bench.backend == frrconfig.KernelTable {
		bench.sync(t, bench, 0, nil)
	}
	if err := withdrawn(other); err == nil {
		t.Error("bgpd is away, and its routes count as withdrawn")
	}
	if there := bench.leaves[0].announced(t); !slices.Equal(there, other) {
		t.Errorf("the leaf did not keep what it heard: %v", there)
	}
	bench.frr.Start(t, "bgpd")
	testlab.Eventually(t, "bgpd takes what is wanted", func() bool {
		_, _, err := bench.Sync(t.Context(), bench.rails[0], nil)
		return err == nil
	})
	testlab.Eventually(t, "the routes are withdrawn", func() bool { return withdrawn(other) == nil })
	bench.leaves[0].expect(t, nil)
}
