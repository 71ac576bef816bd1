package announce

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"railwright/node/internal/announce/frrconfig"
	"railwright/node/testlab"
)

// bench is a fabric with an announcer and its events, for the steps of a combination.
type bench struct {
	*fabric
	Announcer
	backend frrconfig.Backend
	events  <-chan Event
}

func TestAnnouncer(t *testing.T) {
	t.Parallel()
	steps := []struct {
		name   string
		run    func(*testing.T, *bench)
		always bool
	}{
		{"announces and withdraws", announcesAndWithdraws, true},
		{"refuses prefixes that are no pod's", refusesForeignPrefixes, false},
		{"stays below its cap", staysBelowCap, false},
		{"many waits share a look", sharesLooks, false},
		{"reports why nothing is advertised", reportsReasons, false},
		{"wrong routes do not reach a leaf", wrongRoutes, true},
		{"reports foreign changes", reportsForeignChanges, true},
		{"bgpd hangs", bgpdHangs, false},
		{"bgpd restarts", bgpdRestarts, true},
		{"leaf keeps stale routes", leafKeepsStaleRoutes, true},
		{"bgpd forgets a withdrawal", bgpdForgets, true},
		{"zebra restarts", zebraRestarts, false},
		{"zebra forgets a withdrawal", zebraForgets, false},
		{"leaf restarts", leafRestarts, false},
		{"leaf reaches its prefix limit", leafLimitReached, false},
	}
	for _, combination := range combinations {
		t.Run(combination.name, func(t *testing.T) {
			t.Parallel()
			fabric := newFabric(t, combination.version, combination.backend)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			announcer := fabric.announcer(t, combination.backend)
			bench := &bench{fabric, announcer, combination.backend, announcer.Events(ctx)}
			for _, step := range steps {
				if !combination.all && !step.always {
					continue
				}
				for rail := range fabric.rails {
					fabric.sync(t, bench, rail, nil)
					fabric.leaves[rail].expect(t, nil)
				}
				began := time.Now()
				if !t.Run(step.name, func(t *testing.T) { step.run(t, bench) }) {
					t.Log(fabric.frr.Show(t, "show running-config", "show bgp summary"))
				}
				t.Logf("%.1f s: %s", time.Since(began).Seconds(), step.name)
			}
			cancel()
			testlab.Eventually(t, "end of events", func() bool {
				_, open := <-bench.events
				return !open
			})
		})
	}
}

func announcesAndWithdraws(t *testing.T, bench *bench) {
	for rail, name := range bench.rails {
		prefixes := pods(rail, 0, 6)
		added, removed, err := bench.Sync(t.Context(), name, prefixes)
		if err != nil || added != 6 || removed != 0 {
			t.Fatalf("added %d, removed %d, %v", added, removed, err)
		}
		bench.wait(t, bench, rail, prefixes)
		bench.leaves[rail].expect(t, prefixes)
		if listed, err := bench.List(t.Context(), name); err != nil || !slices.Equal(listed, prefixes) {
			t.Fatalf("lists %v, %v", listed, err)
		}
		session, err := bench.Session(t.Context(), name)
		if err != nil || !session.Established || session.State != "Established" || session.Advertised != 6 {
			t.Fatalf("%+v, %v", session, err)
		}
		added, removed, err = bench.Sync(t.Context(), name, prefixes[1:])
		if err != nil || added != 0 || removed != 1 {
			t.Fatalf("added %d, removed %d, %v", added, removed, err)
		}
		bench.leaves[rail].expect(t, prefixes[1:])
		added, removed, err = bench.Sync(t.Context(), name, prefixes[1:])
		if err != nil || added+removed != 0 {
			t.Fatalf("repeated sync: added %d, removed %d, %v", added, removed, err)
		}
	}
	bench.leaves[0].expect(t, pods(0, 0, 6)[1:])
}

func refusesForeignPrefixes(t *testing.T, bench *bench) {
	good := pods(0, 0, 1)
	for _, wrong := range []string{"10.0.0.0/24", "0.0.0.0/0", "::/0", "10.1.0.1/32", "fd00:0:1::1/128", "192.0.2.1/32", "fd00::/64"} {
		_, _, err := bench.Sync(t.Context(), bench.rails[0], append(good, netip.MustParsePrefix(wrong)))
		if !errors.Is(err, ErrNotAllowed) || !strings.Contains(err.Error(), wrong) {
			t.Fatalf("%s: %v", wrong, err)
		}
	}
	if listed, err := bench.List(t.Context(), bench.rails[0]); err != nil || !slices.Equal(listed, good) {
		t.Fatalf("lists %v, %v", listed, err)
	}
}

func staysBelowCap(t *testing.T, bench *bench) {
	// 12 of each family. The rail's cap is 100 of each, above the leaf's limit.
	bench.sync(t, bench, 0, pods(0, 0, 24))
	var many []netip.Prefix
	for number := range 101 {
		many = append(many, netip.MustParsePrefix(fmt.Sprintf("10.0.7.%d/32", number)))
	}
	_, removed, err := bench.Sync(t.Context(), bench.rails[0], append(many, pods(0, 0, 10)...))
	if !errors.Is(err, ErrTooMany) || !strings.Contains(err.Error(), "106 ipv4 prefixes on rail rail0, the cap is 100") || removed != 14 {
		t.Fatalf("removed %d, %v", removed, err)
	}
	bench.leaves[0].expect(t, pods(0, 0, 10))
}

func sharesLooks(t *testing.T, bench *bench) {
	prefixes := pods(1, 0, 80)
	done := make(chan error)
	for number := range prefixes {
		go func() {
			ctx, cancel := context.WithTimeout(t.Context(), testlab.Patience)
			defer cancel()
			done <- bench.WaitAdvertised(ctx, bench.rails[1], prefixes[number:number+1])
		}()
	}
	bench.sync(t, bench, 1, prefixes)
	for range prefixes {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// expectReason waits until the reason that a prefix is not advertised contains all of want.
func (bn *bench) expectReason(t *testing.T, rail int, prefix string, want ...string) {
	t.Helper()
	testlab.UntilRight(t, func() string {
		ctx, cancel := context.WithTimeout(t.Context(), 700*time.Millisecond)
		defer cancel()
		err := bn.WaitAdvertised(ctx, bn.rails[rail], []netip.Prefix{netip.MustParsePrefix(prefix)})
		if !errors.Is(err, ErrNotAdvertised) || !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
		for _, text := range want {
			if !strings.Contains(err.Error(), text) {
				return err.Error()
			}
		}
		return ""
	})
}

func reportsReasons(t *testing.T, bench *bench) {
	bench.expectReason(t, 0, "10.0.0.77/32", "it is not in BGP", "railwright-rail0")
	bench.sync(t, bench, 0, pods(0, 0, 2))
	bench.leaves[0].expect(t, pods(0, 0, 2))
	bench.frr.Show(t, "configure terminal", "no route-map railwright-rail0 permit 20")
	defer func() {
		bench.frr.Show(t, "configure terminal", "route-map railwright-rail0 permit 20", "match ipv6 address prefix-list railwright-rail0")
		bench.leaves[0].expect(t, pods(0, 0, 2))
	}()
	bench.leaves[0].expect(t, pods(0, 0, 2)[:1])
	bench.expectReason(t, 0, "fd00::1/128", "route map")
}

// wrongRoutes adds wrong routes behind the announcer's back, as a bug or another program would. The right routes follow
// them, so a leaf that has those has already decided about the wrong ones.
func wrongRoutes(t *testing.T, bench *bench) {
	wrong := []string{"0.0.0.0/0", "10.0.5.0/24", "10.1.0.66/32", "192.0.2.77/32", "::/0", "fd00:0:0:5::/64",
		"fd00:0:1::66/128", "2001:db8::7/128"}
	for _, prefix := range wrong {
		if bench.backend == frrconfig.KernelTable {
			bench.node.IP(t, "route", "add", "blackhole", prefix, "table", "7700", "proto", "114")
			continue
		}
		family := "ipv4"
		if strings.Contains(prefix, ":") {
			family = "ipv6"
		}
		bench.frr.Show(t, "configure terminal", fmt.Sprintf("router bgp %d", nodeASN), "address-family "+family+" unicast",
			"network "+prefix+" route-map railwright-rail0")
	}
	right := pods(0, 0, 2)
	for _, prefix := range right {
		if bench.backend == frrconfig.KernelTable {
			bench.node.IP(t, "route", "add", "blackhole", prefix.String(), "table", "7700", "proto", "114")
			continue
		}
		bench.frr.Show(t, "configure terminal", fmt.Sprintf("router bgp %d", nodeASN), "address-family "+familyOf(prefix).name+" unicast",
			"network "+prefix.String()+" route-map railwright-rail0")
	}
	bench.leaves[0].expect(t, right)
	if leaked := bench.leaves[1].announcedPrefixes(t); len(leaked) != 0 {
		t.Errorf("the other rail's leaf has %v", leaked)
	}
	// Sync removes them, whoever added them.
	_, removed, err := bench.Sync(t.Context(), bench.rails[0], right)
	if err != nil || removed != len(wrong) {
		t.Errorf("removed %d of %d, %v", removed, len(wrong), err)
	}
}
