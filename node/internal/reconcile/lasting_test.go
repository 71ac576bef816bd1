package reconcile

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"railwright/node/internal/announce"
	"railwright/node/internal/attachment"
	"railwright/node/internal/collect"
	"railwright/node/internal/openvswitch"
	"railwright/node/internal/plan"
	"railwright/node/internal/tenants"
	"railwright/node/internal/tombstone"
)

func TestRestartKeepsLivePodsUnchanged(t *testing.T) {
	bench := newBench(t).start()
	record := bench.mustAttach(1, bothParts...)
	bench.stop()
	before := len(bench.diary.all())
	bench.start()
	bench.eventually("claims are compared", func() bool { return slices.Contains(bench.diary.all()[before:], "retain 1") })
	for _, line := range bench.diary.all()[before:] {
		if strings.HasPrefix(line, "flows") || strings.HasPrefix(line, "route") || strings.HasPrefix(line, "release") {
			t.Errorf("after the restart: %s", line)
		}
	}
	if bench.sw.flowsOf(record.Number) == 0 {
		t.Error("flows are gone")
	}
}

func TestAddressOfAnotherNodeGetsNoFlowsAfterRestart(t *testing.T) {
	bench := newBench(t).start()
	record := bench.mustAttach(1, bothParts...)
	bench.stop()
	bench.directory.change(func() { bench.directory.refuse = tenants.ErrTaken })
	bench.start()
	bench.eventually("the flows are gone", func() bool { return bench.sw.flowsOf(record.Number) == 0 })
	if troubles := bench.rails["rail0"].attachmentProblems(); len(troubles) != 1 || !strings.Contains(troubles[0], "rail0/c1/net1 has no flows") {
		t.Error(troubles)
	}
	if problems := bench.Problems(); len(problems) != 0 {
		t.Errorf("problem of one attachment affects all: %v", problems)
	}
	bench.directory.change(func() { bench.directory.refuse = nil })
	bench.eventually("the flows are back", func() bool { return bench.sw.flowsOf(record.Number) > 0 })
	if problems := bench.Rails(context.Background(), "")[0].Problems; len(problems) != 0 {
		t.Error(problems)
	}
}

func TestLostFlowsAndRoutesAreRestored(t *testing.T) {
	bench := newBench(t).start()
	record := bench.mustAttach(1, bothParts...)
	bench.sw.set(func() { bench.sw.flows["br0"] = map[plan.Key]plan.Flow{} })
	bench.sw.events <- openvswitch.Event{Bridge: "br0", FlowsLost: true, Reason: "vswitchd restarted"}
	bench.eventually("the flows are back", func() bool { return bench.sw.flowsOf(record.Number) > 0 })
	bench.routes.set(func() { bench.routes.tables["rail0"] = prefixes{} })
	bench.routes.events <- announce.Event{Reason: "another program deleted a route"}
	bench.eventually("the route is back", func() bool {
		bench.routes.mutex.Lock()
		defer bench.routes.mutex.Unlock()
		return bench.routes.tables["rail0"].hasAll(record.Prefixes())
	})
}

func TestDELWhileSwitchIsDownFinishesLater(t *testing.T) {
	bench := newBench(t).start()
	record := bench.mustAttach(1, bothParts...)
	bench.sw.set(func() { bench.sw.away = errors.New("ovs-vswitchd is away") })
	bench.mustDetach(1, bothParts...)
	if bench.routes.tables["rail0"].hasAny(hostPrefixes(record)) {
		t.Error("route was not withdrawn while the switch is down")
	}
	if bench.diary.count("release 10.1.0.1") != 0 {
		t.Error("address was released while its flows may remain")
	}
	next := sampleAttachment(2, bothParts...)
	next.Addresses = record.Addresses
	if _, err := bench.attach(next); err == nil {
		t.Error("address was assigned to another pod")
	}
	bench.pods.set(record.Netns, collect.Gone)
	bench.restartDuringOutage(func() { bench.sw.away = nil })
	bench.eventually("attachment is undone", func() bool { return bench.nothingLeft(record) })
	bench.eventually("port is removed", func() bool { return bench.diary.count("port -veth1 /run/netns/n1") == 1 })
	if bench.diary.count("flows +1") != 1 {
		t.Error("leaving attachment was programmed again")
	}
}

// restartDuringOutage restarts during an outage that ends shortly afterwards.
func (bn *bench) restartDuringOutage(back func()) {
	bn.t.Helper()
	bn.stop()
	time.AfterFunc(300*time.Millisecond, func() { bn.sw.set(back) })
	bn.start()
}

func TestOnlyDeadPodsAreCollected(t *testing.T) {
	bench := newBench(t).start()
	bench.garbage.grace = 300 * time.Millisecond
	lives, veth, vf, unseen := bench.mustAttach(1, bothParts...), bench.mustAttach(2, bothParts...), bench.mustAttach(3, bothParts...), bench.mustAttach(4, bothParts...)
	bench.pods.set(veth.Netns, collect.Gone)
	bench.pods.set(vf.Netns, collect.Gone)
	bench.pods.set(unseen.Netns, collect.Unknown)
	bench.sw.set(func() { delete(bench.sw.ports, "veth2") })
	bench.sw.events <- openvswitch.Event{Bridge: "br0", Reason: "port gone"}
	bench.eventually("both are gone", func() bool { return bench.nothingLeft(veth) && bench.nothingLeft(vf) })
	bench.eventually("ports are removed", func() bool {
		return bench.diary.count("port -veth2 /run/netns/n2") == 1 && bench.diary.count("port -veth3 /run/netns/n3") == 1
	})
	for _, record := range []attachment.Key{lives.Key, unseen.Key} {
		if _, found := bench.store.Get(record); !found {
			t.Errorf("%s was collected", record)
		}
	}
	bench.eventually("unknown pod is reported", func() bool {
		troubles := bench.rails["rail0"].attachmentProblems()
		return len(troubles) == 1 && strings.Contains(troubles[0], "rail0/c4/net1")
	})
}

func TestGraceAppliesWhileThePortExists(t *testing.T) {
	now := time.Now()
	garbage := garbage{grace: defaultGrace}
	key := sampleAttachment(1).Key
	for _, step := range []struct {
		after    time.Duration
		portGone bool
		due      bool
	}{{0, false, false}, {9 * time.Second, false, false}, {9 * time.Second, true, true}, {10 * time.Second, false, true}} {
		if due := garbage.due(key, step.portGone, now.Add(step.after)); due != step.due {
			t.Errorf("%+v: due %v", step, due)
		}
	}
	garbage.forget(key)
	if garbage.due(key, false, now.Add(time.Minute)) {
		t.Error("grace did not restart for a pod that was seen again")
	}
}

func TestNoAttachmentOutlivesAReboot(t *testing.T) {
	bench := newBench(t).start()
	record := bench.mustAttach(1, bothParts...)
	bench.stop()
	bench.sw.set(func() { bench.sw.flows["br0"] = map[plan.Key]plan.Flow{} })
	bench.routes.set(func() { bench.routes.tables["rail0"] = prefixes{} })
	bench.pods.boot = "boot-2"
	bench.start()
	bench.eventually("attachment is gone", func() bool { return bench.nothingLeft(record) })
	if bench.diary.count("flows +1") != 1 || bench.diary.count("route +10.1.0.1/32") != 1 {
		t.Error("attachment was programmed again", bench.diary.all())
	}
}

func TestCollectGarbageKeepsListedLiveAndForeign(t *testing.T) {
	bench := newBench(t).start()
	bench.garbage.grace = time.Hour
	for i := range 4 {
		bench.mustAttach(i, bothParts...)
	}
	other := sampleAttachment(5, bothParts...)
	other.Key.Network = "rail9"
	if _, err := bench.attach(other); err != nil {
		t.Fatal(err)
	}
	for _, gone := range []string{"/run/netns/n1", "/run/netns/n2", "/run/netns/n5"} {
		bench.pods.set(gone, collect.Gone)
	}
	deleted, err := bench.CollectGarbage(context.Background(), "rail0", []attachment.Key{sampleAttachment(1).Key})
	if err != nil || len(deleted) != 1 || deleted[0] != sampleAttachment(2).Key {
		t.Errorf("deleted %v, %v", deleted, err)
	}
	if listed := bench.List(t.Context()); len(listed) != 4 {
		t.Error(listed)
	}
}

func TestTombstonesAreReplayedOnce(t *testing.T) {
	bench := newBench(t).start()
	whole, part, late := bench.mustAttach(1, bothParts...), bench.mustAttach(2, bothParts...), bench.mustAttach(3, bothParts...)
	bench.stop()
	bury := func(stone tombstone.Tombstone) {
		t.Helper()
		if err := tombstone.Write(bench.stones, stone); err != nil {
			t.Fatal(err)
		}
	}
	bury(tombstone.Tombstone{Key: whole.Key, Parts: bothParts, Written: time.Now()})
	bury(tombstone.Tombstone{Key: part.Key, Parts: []attachment.Part{attachment.Routes}, Written: time.Now()})
	bury(tombstone.Tombstone{Key: late.Key, Parts: bothParts, Written: late.Added.Add(-time.Second)})
	bury(tombstone.Tombstone{Key: sampleAttachment(9).Key, Parts: bothParts, Written: time.Now()})
	if err := os.WriteFile(bench.stones+"/broken.json", []byte("{"), 0o600); err != nil {
		t.Fatal(err)
	}
	bench.start()
	empty := func() bool {
		paths, err := tombstone.List(bench.stones)
		return err == nil && len(paths) == 0
	}
	bench.eventually("all tombstones replayed", func() bool { return empty() && bench.nothingLeft(whole) })
	if record, _ := bench.store.Get(part.Key); !slices.Equal(record.Part, []attachment.Part{attachment.Flows}) {
		t.Errorf("parts %v", record.Part)
	}
	if record, found := bench.store.Get(late.Key); !found || len(record.Part) != 2 {
		t.Error("tombstone older than the ADD was replayed")
	}
	if kept, err := os.ReadFile(bench.stones + "/.damaged-broken.json"); err != nil || string(kept) != "{" {
		t.Error("damaged tombstone was not kept", err)
	}
	bury(tombstone.Tombstone{Key: late.Key, Parts: bothParts, Written: time.Now()})
	bench.eventually("new tombstone replayed", func() bool { return empty() && bench.nothingLeft(late) })
}

func TestDELWorksOnAFullDisk(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a small file system needs root")
	}
	bench := newBench(t)
	if err := syscall.Mount("tmpfs", bench.folder, "tmpfs", 0, "size=64k"); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(bench.folder, syscall.MNT_DETACH) })
	bench.start()
	record := bench.mustAttach(1, bothParts...)
	if err := os.WriteFile(bench.folder+"/damaged/filler", make([]byte, 1<<20), 0o600); !errors.Is(err, syscall.ENOSPC) {
		t.Fatal(err)
	}
	_, err := bench.attach(sampleAttachment(2, bothParts...))
	expectKind(t, err, NotStored)
	if problems := bench.ReadinessProblems(); len(problems) != 1 || !strings.Contains(problems[0], "no space left") {
		t.Error(problems)
	}
	bench.mustDetach(1, bothParts...)
	bench.eventually("nothing is left", func() bool { return bench.nothingLeft(record) })
	if err := os.Remove(bench.folder + "/damaged/filler"); err != nil {
		t.Fatal(err)
	}
	bench.mustAttach(2, bothParts...)
}
