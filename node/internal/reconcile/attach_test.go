package reconcile

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"railwright/node/internal/attachment"
	"railwright/node/internal/collect"
	"railwright/node/internal/tenants"
)

func TestADDStoresClaimsProgramsAndAnnouncesInOrder(t *testing.T) {
	bench := newBench(t).start()
	attached, err := bench.attach(sampleAttachment(1, bothParts...))
	if err != nil {
		t.Fatal(err)
	}
	if attached.Rail != "rail0" || attached.Tenant != "ns:tenant-a" {
		t.Errorf("%+v", attached)
	}
	bench.inOrder("claim 10.1.0.1 ns:tenant-a", "flows +1", "route +10.1.0.1/32", "settle 1", "advertised 10.1.0.1/32")
	bench.mustDetach(1, bothParts...)
	bench.inOrder("route -10.1.0.1/32", "flows -1", "settle 2", "withdraw 10.1.0.1")
	bench.eventuallyNone()
	bench.inOrder("route -10.1.0.1/32", "flows -1", "settle 2", "withdraw 10.1.0.1", "withdrawn 10.1.0.1/32", "release 10.1.0.1")
	if bench.diary.count("replace") != 2 {
		t.Errorf("want only differences programmed after the start: %v", bench.diary.all())
	}
	before := len(bench.diary.all())
	bench.mustDetach(1, bothParts...)
	// The housekeeping may write entries at any time.
	for _, entry := range bench.diary.all()[before:] {
		if word, _, _ := strings.Cut(entry, " "); slices.Contains([]string{"claim", "flows", "route", "release"}, word) {
			t.Errorf("second DEL changed something: %s", entry)
		}
	}
}

func TestARateThatWouldWrapIsRefusedAndLeavesNothing(t *testing.T) {
	bench := newBench(t).start()
	want := sampleAttachment(1, bothParts...)
	want.MaxRate = 100e9
	_, err := bench.attach(want)
	var failure *Failure
	if !errors.As(err, &failure) || failure.Kind != RateTooHigh || !strings.Contains(failure.Hint, "Open vSwitch 3.2") {
		t.Fatalf("%v", err)
	}
	if bench.diary.count("claim 10.1.0.1 ns:tenant-a") != 0 {
		t.Fatal(bench.diary.all())
	}
	want.MaxRate = 25e9
	if _, err := bench.attach(want); err != nil {
		t.Fatal(err)
	}
}

func TestPartsAreAddedAndRemovedSeparately(t *testing.T) {
	bench := newBench(t).start()
	record := bench.mustAttach(1, attachment.Flows)
	if bench.diary.count("route +10.1.0.1/32") != 0 || bench.sw.flowsOf(record.Number) == 0 {
		t.Fatal(bench.diary.all())
	}
	bench.mustAttach(1, attachment.Routes)
	bench.mustAttach(1, attachment.Routes)
	if bench.diary.count("route +10.1.0.1/32") != 1 {
		t.Fatal(bench.diary.all())
	}
	bench.mustDetach(1, attachment.Routes)
	if bench.diary.count("route -10.1.0.1/32") != 1 || bench.sw.flowsOf(record.Number) == 0 {
		t.Fatal(bench.diary.all())
	}
	bench.mustDetach(1, attachment.Flows)
	bench.eventually("nothing is left", func() bool { return bench.nothingLeft(record) })
	bench.mustAttach(1, attachment.Flows)
	if bench.diary.count("claim 10.1.0.1 ns:tenant-a") != 2 {
		t.Error("released address was not claimed again", bench.diary.all())
	}
}

func TestRepeatedADDSucceedsAndDifferentOneIsRefused(t *testing.T) {
	bench := newBench(t).start()
	bench.mustAttach(1, bothParts...)
	bench.mustAttach(1, bothParts...)
	for name, change := range map[string]func(*attachment.Attachment){
		"pod":               func(att *attachment.Attachment) { att.Pod.Name = "other" },
		"address":           func(att *attachment.Attachment) { att.Addresses = sampleAttachment(2).Addresses },
		"host interface":    func(att *attachment.Attachment) { att.HostInterface = "veth2" },
		"MAC address":       func(att *attachment.Attachment) { att.MAC[5]++ },
		"network namespace": func(att *attachment.Attachment) { att.Netns = "/run/netns/n2" },
		"rate":              func(att *attachment.Attachment) { att.MaxRate = 1e9 },
		"gateway":           func(att *attachment.Attachment) { att.Gateways = []netip.Addr{netip.MustParseAddr("10.1.0.254")} },
		"device":            func(att *attachment.Attachment) { att.DeviceID = "0000:01:10.0" },
	} {
		other := sampleAttachment(1, bothParts...)
		change(&other)
		_, err := bench.attach(other)
		expectKind(t, err, Conflicting)
		if !strings.Contains(err.Error(), "different "+name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if bench.diary.count("claim 10.1.0.1 ns:tenant-a") != 1 {
		t.Fatalf("claimed again: %v", bench.diary.all())
	}
	other := sampleAttachment(1, attachment.Routes)
	other.MaxRate = 5
	if _, err := bench.attach(other); err != nil {
		t.Errorf("rate without flows must not count: %v", err)
	}
}

func TestFailedADDLeavesNothing(t *testing.T) {
	for name, wrong := range map[string]struct {
		kind Kind
		make func(*bench, *attachment.Attachment)
	}{
		"not advertised": {NotAdvertised, func(bench *bench, _ *attachment.Attachment) {
			bench.routes.set(func() { bench.routes.silent = true })
		}},
		"FRR away": {RoutingUnavailable, func(bench *bench, _ *attachment.Attachment) {
			bench.routes.set(func() { bench.routes.away = errors.New("bgpd is away") })
		}},
		"taken": {Taken, func(bench *bench, _ *attachment.Attachment) {
			bench.directory.refuse = fmt.Errorf("%w: node-2", tenants.ErrTaken)
		}},
		"outside the tenant": {OutsidePrefixes, func(bench *bench, _ *attachment.Attachment) { bench.directory.refuse = tenants.ErrOutside }},
		"directory away":     {DirectoryUnavailable, func(bench *bench, _ *attachment.Attachment) { bench.directory.refuse = tenants.ErrUnreachable }},
		"no port":            {SwitchUnavailable, func(_ *bench, att *attachment.Attachment) { att.HostInterface = "veth999" }},
		"no namespace":       {NoPod, func(_ *bench, att *attachment.Attachment) { att.Netns = "/run/netns/none" }},
		"no rail":            {NoRail, func(_ *bench, att *attachment.Attachment) { att.HostInterface = "other0" }},
	} {
		t.Run(name, func(t *testing.T) {
			bench := newBench(t).start()
			other := bench.mustAttach(2, bothParts...)
			att := sampleAttachment(1, bothParts...)
			wrong.make(bench, &att)
			_, err := bench.attach(att)
			expectKind(t, err, wrong.kind)
			bench.routes.set(func() { bench.routes.away, bench.routes.silent = nil, false })
			record := other
			record.Attachment = att
			record.Number = other.Number + 1
			bench.eventually("nothing is left", func() bool { return bench.nothingLeft(record) })
			if bench.nothingLeft(other) || bench.sw.flowsOf(other.Number) == 0 {
				t.Error("another pod lost its state")
			}
			if wrong.kind == Taken && bench.diary.count("flows +2") != 0 {
				t.Error("flows were programmed for another pod's address")
			}
		})
	}
}

func TestConcurrentADDsSharePasses(t *testing.T) {
	bench := newBench(t).start()
	before := bench.diary.count("change")
	// A bundle takes a while, as with ovs-ofctl.
	gate, ended := make(chan struct{}), make(chan struct{})
	bench.sw.set(func() { bench.sw.gate = gate })
	go func() {
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				close(gate)
				return
			case <-tick.C:
				select {
				case gate <- struct{}{}:
				default:
				}
			}
		}
	}()
	var group sync.WaitGroup
	for i := range 50 {
		group.Go(func() {
			if _, err := bench.attach(sampleAttachment(i+1, bothParts...)); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	close(ended)
	if passes := bench.diary.count("change") - before; passes > 25 {
		t.Errorf("50 ADDs took %d bundles", passes)
	}
	for _, record := range bench.store.All() {
		if bench.sw.flowsOf(record.Number) == 0 || !bench.routes.tables["rail0"].hasAll(record.Prefixes()) {
			t.Errorf("%s is not programmed", record.Key)
		}
	}
	for i := range 50 {
		group.Go(func() { bench.mustDetach(i+1, bothParts...) })
	}
	group.Wait()
	if listed := bench.List(t.Context()); len(listed) != 0 || len(bench.routes.tables["rail0"]) != 0 {
		t.Errorf("left: %v", listed)
	}
	bench.eventuallyNone()
	if len(bench.directory.owners) != 0 {
		t.Errorf("left: %v", bench.directory.owners)
	}
}

func TestAddressBelongsToOneLivingPod(t *testing.T) {
	bench := newBench(t).start()
	held := bench.mustAttach(1, bothParts...)
	next := sampleAttachment(2, bothParts...)
	next.Addresses = held.Addresses
	_, err := bench.attach(next)
	expectKind(t, err, Taken)
	if !strings.Contains(err.Error(), "pod tenant-a/pod-1") || !strings.Contains(err.Error(), "10.1.0.1") {
		t.Error(err)
	}
	bench.pods.set(held.Netns, collect.Unknown)
	_, err = bench.attach(next)
	expectKind(t, err, Taken)
	bench.pods.set(held.Netns, collect.Gone)
	if _, err := bench.attach(next); err != nil {
		t.Fatalf("address of a dead pod is refused: %v", err)
	}
	record, _ := bench.store.Get(next.Key)
	if _, found := bench.store.Get(held.Key); found || bench.sw.flowsOf(held.Number) != 0 || bench.sw.flowsOf(record.Number) == 0 {
		t.Error(bench.diary.all())
	}
	// The VF, and with it the port, was assigned to the new pod.
	again := sampleAttachment(3, bothParts...)
	again.HostInterface = next.HostInterface
	bench.pods.set(next.Netns, collect.Gone)
	if _, err := bench.attach(again); err != nil {
		t.Fatal(err)
	}
	if bench.diary.count("port -veth2 /run/netns/n2") != 0 {
		t.Error("the new pod's port was removed")
	}
}

func TestRailAcceptsAddressesUpToTheLeafsLimit(t *testing.T) {
	bench := newBench(t).start()
	rail := bench.rails["rail0"]
	rail.configured.MaxPrefixes = 2
	bench.mustAttach(1, attachment.Flows)
	bench.mustAttach(2, bothParts...)
	_, err := bench.attach(sampleAttachment(3, bothParts...))
	expectKind(t, err, Full)
	six := sampleAttachment(4, bothParts...)
	six.Addresses = []netip.Addr{netip.MustParseAddr("fd00::4")}
	if _, err := bench.attach(six); err != nil {
		t.Errorf("families must count separately: %v", err)
	}
	rail.configured.IPv6 = false
	six.Key.ContainerID, six.HostInterface = "c5", "veth5"
	_, err = bench.attach(six)
	expectKind(t, err, WrongFamily)
	rail.configured.Prefixes = []netip.Prefix{netip.MustParsePrefix("10.9.0.0/16")}
	_, err = bench.attach(sampleAttachment(6, bothParts...))
	expectKind(t, err, OutsidePrefixes)
}

func TestADDWaitsForALatePort(t *testing.T) {
	bench := newBench(t).start()
	late := sampleAttachment(1, bothParts...)
	bench.sw.set(func() { bench.sw.ports["veth1"] = 0 })
	time.AfterFunc(100*time.Millisecond, func() { bench.sw.set(func() { bench.sw.ports["veth1"] = 101 }) })
	if _, err := bench.attach(late); err != nil {
		t.Fatal(err)
	}
	bench.inOrder("flows +1", "route +10.1.0.1/32")
}
