package reconcile

import (
	"context"
	"errors"
	"iter"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"railwright/node/internal/attachment"
	"railwright/node/internal/collect"
	"railwright/node/internal/plan"
	"railwright/node/internal/store"
	"railwright/node/internal/tenants"
)

func TestCheckReportsEveryDifference(t *testing.T) {
	bench := newBench(t).start()
	record := bench.mustAttach(1, bothParts...)
	expect := func(differences ...string) {
		t.Helper()
		found, err := bench.Check(context.Background(), record.Key, bothParts)
		if err != nil || len(found) < len(differences) || len(differences) == 0 && len(found) > 0 {
			t.Fatalf("got %q, %v; want %q", found, err, differences)
		}
		for _, part := range differences {
			if !strings.Contains(strings.Join(found, "\n"), part) {
				t.Errorf("%q is missing from %q", part, found)
			}
		}
	}
	expect()
	bench.pods.set(record.Netns, collect.Unknown)
	expect("pod is not visible")
	bench.pods.set(record.Netns, collect.Alive)
	bench.sw.set(func() {
		for key, flow := range bench.sw.flows["br0"] {
			if number, _, _ := plan.ParseCookie(flow.Cookie); number == record.Number {
				delete(bench.sw.flows["br0"], key)
			}
		}
	})
	expect("in_port=101")
	bench.routes.set(func() { bench.routes.tables["rail0"] = prefixes{} })
	expect("not all of [10.1.0.1/32] are announced")
	if bench.sw.flowsOf(record.Number) != 0 {
		t.Error("CHECK changed something")
	}
	bench.sw.set(func() { bench.sw.away = errors.New("away") })
	_, err := bench.Check(context.Background(), record.Key, bothParts)
	expectKind(t, err, SwitchUnavailable)
	if found, err := bench.Check(context.Background(), sampleAttachment(9).Key, bothParts); err != nil || len(found) != 1 {
		t.Errorf("%q %v", found, err)
	}
}

func TestStatusAndListReportTheActualState(t *testing.T) {
	bench := newBench(t).start()
	record := bench.mustAttach(1, bothParts...)
	listed := bench.List(context.Background())
	if len(listed) != 1 || !listed[0].Advertised || listed[0].FlowsWanted == 0 || listed[0].FlowsWanted != listed[0].FlowsInstalled {
		t.Errorf("%+v", listed)
	}
	if _, counted := listed[0].Dropped[plan.DropSpoofed]; !counted || !listed[0].Counted || listed[0].GatewayMAC == (attachment.MAC{}) {
		t.Errorf("drops or gateway are missing: %+v", listed[0])
	}
	if states := bench.Rails(context.Background(), ""); len(states) != 2 || !states[0].SwitchReady || !states[1].UplinkUp {
		t.Errorf("%+v", states)
	}
	if states := bench.Rails(context.Background(), record.Key.Network); len(states) != 1 || states[0].Name != "rail0" {
		t.Errorf("want rail0 only: %+v", states)
	}
	bench.routes.set(func() { bench.routes.away = errors.New("bgpd is away") })
	state := bench.Rails(context.Background(), "rail0")[0]
	if state.SessionEstablished || !state.SwitchReady || !strings.Contains(strings.Join(state.Problems, " "), "bgpd is away") {
		t.Errorf("%+v", state)
	}
	if problems := bench.LivenessProblems(); len(problems) != 0 {
		t.Error(problems)
	}
	rails := bench.measure(context.Background())
	if rail := rails["rail0"]; rail.Attachments != 1 || rail.FlowsInstalled == nil || *rail.FlowsInstalled != rail.FlowsWanted ||
		rail.SessionEstablished != nil || !rail.SwitchReady || rail.RoutesWanted != 1 || *rail.RoutesAnnounced != 1 {
		t.Errorf("%+v", rail)
	}
}

func TestRailsAreQueriedConcurrently(t *testing.T) {
	bench := newBench(t).start()
	bench.mustAttach(1, bothParts...)
	for name, ask := range map[string]func(context.Context){
		"list":    func(ctx context.Context) { bench.List(ctx) },
		"status":  func(ctx context.Context) { bench.Rails(ctx, "") },
		"metrics": func(ctx context.Context) { bench.measure(ctx) },
	} {
		meeting, met := make(chan struct{}), make(chan bool, 16)
		bench.sw.set(func() {
			bench.sw.counting = func(ctx context.Context) error {
				select {
				case meeting <- struct{}{}:
				case <-meeting:
				case <-ctx.Done():
				}
				met <- ctx.Err() == nil
				return ctx.Err()
			}
		})
		ask(t.Context())
		if first, second := <-met, <-met; !first || !second {
			t.Errorf("%s: rails were queried sequentially", name)
		}
	}
}

func TestPairOpensBothTenants(t *testing.T) {
	pairs := [][2]string{{"a", "b"}, {"c", "a"}, {"b", "c"}}
	for tenant, want := range map[string][]string{"a": {"b", "c"}, "b": {"a", "c"}, "d": nil} {
		if open := peersOf(tenant, pairs); !slices.Equal(open, want) {
			t.Errorf("%s is open to %q, want %q", tenant, open, want)
		}
	}
}

// TestADirectoryChangeThatFailsIsProgrammedLater also checks that a change that was heard costs no look at the bridge.
func TestADirectoryChangeThatFailsIsProgrammedLater(t *testing.T) {
	bench := newBench(t).start()
	record := bench.mustAttach(1, bothParts...)
	elsewhere := netip.MustParseAddr("10.1.7.7")
	has := func() (found bool) {
		bench.sw.set(func() {
			for key := range bench.sw.flows["br0"] {
				found = found || strings.Contains(key.Match, elsewhere.String())
			}
		})
		return found
	}
	looks := func() (count int) {
		bench.sw.set(func() { count = bench.sw.looks["br0"] })
		return count
	}
	before := looks()
	bench.directory.change(func() { bench.directory.owners[elsewhere] = tenants.Claim{Tenant: record.Tenant} })
	bench.eventually("the flows are there", has)
	if looks() != before {
		t.Errorf("%d looks at the bridge for a change of members", looks()-before)
	}
	bench.sw.set(func() { bench.sw.away = errors.New("away") })
	bench.directory.change(func() { delete(bench.directory.owners, elsewhere) })
	bench.eventually("failed pass of the rail", func() bool { return bench.rails["rail0"].lastPass().outcome.flows != nil })
	if !has() {
		t.Error("flows are gone although the switch is away")
	}
	bench.sw.set(func() { bench.sw.away = nil })
	bench.eventually("the flows are gone", func() bool { return !has() })
}

// TestADDReturnsOnceTheViewHasItsAddresses attaches a pod of one rail while the other has one too: both bridges must know
// the new addresses, and the datapaths be settled, when the ADD returns.
func TestADDReturnsOnceTheViewHasItsAddresses(t *testing.T) {
	bench := newBench(t).start()
	second := sampleAttachment(50, bothParts...)
	second.Key.Network = "rail1"
	record := store.Record{Attachment: second, Boot: "boot-1"}
	record.Rail, record.Tenant, record.Added = "rail1", "ns:tenant-a", time.Now()
	if _, err := bench.store.Reserve(record, func(iter.Seq[store.Record]) error { return nil }); err != nil {
		t.Fatal(err)
	}
	for i := 1; i <= 20; i++ {
		bench.mustAttach(i, bothParts...)
		address := sampleAttachment(i).Addresses[0].String() + "/32"
		bench.sw.set(func() {
			for bridge, flows := range bench.sw.flows {
				found := 0
				for key := range flows {
					if key.Priority == 132 && strings.HasSuffix(key.Match, "="+strings.TrimSuffix(address, "/32")) || strings.HasSuffix(key.Match, "="+address) {
						found++
					}
				}
				if found < 2 {
					t.Errorf("%s has %d flows of member %s when the ADD returns", bridge, found, address)
				}
			}
		})
	}
	if bench.diary.count("settle 1") != 20 {
		t.Errorf("%d ADDs waited for the datapaths", bench.diary.count("settle 1"))
	}
}

func TestPodFollowsItsNamespaceToAnotherTenant(t *testing.T) {
	bench := newBench(t).start()
	record := bench.mustAttach(1, bothParts...)
	bench.directory.change(func() { bench.directory.tenant["tenant-a"] = "group" })
	bench.eventually("pod belongs to the new tenant", func() bool {
		moved, _ := bench.store.Get(record.Key)
		return moved.Tenant == "group" && bench.sw.flowsOf(record.Number) > 0
	})
	bench.inOrder("flows +1", "flows -1", "settle 2", "release 10.1.0.1", "claim 10.1.0.1 group", "flows +1")
	if bench.diary.count("route -10.1.0.1/32") != 0 {
		t.Error("route flapped")
	}
}

func TestKeyLockIsExclusive(t *testing.T) {
	var locks keyLocks
	key := sampleAttachment(1).Key
	unlock, err := locks.lock(context.Background(), key)
	if err != nil {
		t.Fatal(err)
	}
	if _, free := locks.try(key); free {
		t.Fatal("key was locked twice")
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := locks.lock(ctx, key); err == nil {
		t.Fatal("cancelled request got the key")
	}
	unlockOther, free := locks.try(sampleAttachment(2).Key)
	if !free {
		t.Fatal("another key is not free")
	}
	unlockOther()
	unlock()
	if again, free := locks.try(key); !free {
		t.Fatal("key is not free after unlock")
	} else {
		again()
	}
	if len(locks.held) != 0 {
		t.Errorf("locks left: %v", locks.held)
	}
}
