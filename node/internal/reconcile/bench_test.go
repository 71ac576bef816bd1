package reconcile

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"railwright/node/internal/announce"
	"railwright/node/internal/attachment"
	"railwright/node/internal/collect"
	"railwright/node/internal/config"
	"railwright/node/internal/metrics"
	"railwright/node/internal/openvswitch"
	"railwright/node/internal/plan"
	"railwright/node/internal/store"
	"railwright/node/testlab"
)

// bench is a reconciler with fakes. The outside (flows, routes, claims) survives a restart.
type bench struct {
	*Reconciler
	t         *testing.T
	diary     *diary
	sw        *fakeSwitch
	routes    *fakeAnnouncer
	directory *fakeDirectory
	pods      *fakePods
	folder    string
	stones    string
	stop      func()
	node      *fakeNode
	// forwarding is how long an ADD waits for the leaf to forward. 0 means that it does not wait.
	forwarding time.Duration
	// without names a rail that is missing from the configuration. unknown means that it is not remembered either.
	without string
	unknown bool
}

var bothParts = []attachment.Part{attachment.Flows, attachment.Routes}

func newBench(t *testing.T) *bench {
	t.Helper()
	diary := &diary{}
	bench := &bench{
		t: t, diary: diary, folder: t.TempDir(), stones: t.TempDir(),
		sw: &fakeSwitch{
			diary: diary, ports: map[string]uint32{"other0": 7}, flows: map[string]map[plan.Key]plan.Flow{},
			events: make(chan openvswitch.Event, 8), looks: map[string]int{},
		},
		routes:    &fakeAnnouncer{diary: diary, tables: map[string]prefixes{}, events: make(chan announce.Event, 8)},
		directory: newFakeDirectory(diary),
		node:      &fakeNode{},
		pods:      &fakePods{boot: "boot-1", lives: map[string]collect.Life{}},
	}
	for i := range 100 {
		bench.sw.ports[fmt.Sprintf("veth%d", i)] = uint32(100 + i)
	}
	return bench
}

var pods = []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00::/48")}

// start starts or restarts the reconciler.
func (bn *bench) start() *bench {
	bn.t.Helper()
	kept, damaged, err := store.Open(bn.folder)
	if err != nil || len(damaged) > 0 {
		bn.t.Fatal(err, damaged)
	}
	logs := io.Discard
	if os.Getenv("RAILWRIGHT_TEST_LOG") != "" {
		logs = os.Stderr
	}
	configured := config.Config{
		AdvertiseTimeout: 200 * time.Millisecond, ForwardTimeout: bn.forwarding,
	}
	for _, rail := range []config.Rail{
		{Rail: plan.Rail{Name: "rail0", Bridge: "br0", Uplink: "p0", Table: 210}, IPv4: true, IPv6: true, MaxPrefixes: 90, Prefixes: pods},
		{Rail: plan.Rail{Name: "rail1", Bridge: "br1", Uplink: "p1", Table: 211}, IPv4: true, MaxPrefixes: 90, Prefixes: pods},
	} {
		rail.Retired = rail.Name == bn.without
		switch {
		case !rail.Retired:
			configured.Rails = append(configured.Rails, rail)
		case !bn.unknown:
			configured.RetiredRails = append(configured.RetiredRails, rail)
		}
	}
	bn.Reconciler = New(Parts{
		Config: configured,
		Store:  kept, Switch: bn.sw, Announcer: bn.routes, Directory: bn.directory, Pods: bn.pods,
		Metrics: metrics.New(), Log: slog.New(slog.NewTextHandler(logs, &slog.HandlerOptions{Level: slog.LevelDebug})),
		Links: fakeLinks{}, Node: bn.node, Tombstones: bn.stones, Forget: func(rail string) error {
			bn.diary.write("forget %s", rail)
			return nil
		},
	})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		bn.Run(ctx)
	}()
	bn.stop = sync.OnceFunc(func() {
		cancel()
		select {
		case <-ended:
		case <-time.After(testlab.Patience):
			bn.t.Error("reconciler did not stop")
		}
	})
	bn.t.Cleanup(bn.stop)
	bn.eventually("both rails ready", func() bool { return len(bn.ReadinessProblems()) == 0 })
	return bn
}

func (bn *bench) eventually(name string, holds func() bool) {
	bn.t.Helper()
	for end := time.Now().Add(testlab.Patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if holds() {
			return
		}
	}
	bn.t.Fatalf("never happened: %s\n%v", name, bn.diary.all())
}

// sampleAttachment returns attachment number i of the namespace tenant-a.
func sampleAttachment(i int, parts ...attachment.Part) attachment.Attachment {
	return attachment.Attachment{
		Key:  attachment.Key{Network: "rail0", ContainerID: fmt.Sprintf("c%d", i), Interface: "net1"},
		Pod:  attachment.Pod{Namespace: "tenant-a", Name: fmt.Sprintf("pod-%d", i), UID: "u"},
		Part: parts, Netns: fmt.Sprintf("/run/netns/n%d", i), HostInterface: fmt.Sprintf("veth%d", i),
		MAC: attachment.MAC{2, 0, 0, 0, 0, byte(i)}, Addresses: []netip.Addr{netip.AddrFrom4([4]byte{10, 1, 0, byte(i)})},
	}
}

func (bn *bench) attach(want attachment.Attachment) (Attached, error) {
	ctx, cancel := context.WithTimeout(context.Background(), testlab.Patience)
	defer cancel()
	return bn.Attach(ctx, want)
}

func (bn *bench) mustAttach(i int, parts ...attachment.Part) store.Record {
	bn.t.Helper()
	if _, err := bn.attach(sampleAttachment(i, parts...)); err != nil {
		bn.t.Fatal(err)
	}
	record, _ := bn.store.Get(sampleAttachment(i).Key)
	return record
}

func (bn *bench) mustDetach(i int, parts ...attachment.Part) {
	bn.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), testlab.Patience)
	defer cancel()
	if err := bn.Detach(ctx, sampleAttachment(i).Key, parts); err != nil {
		bn.t.Fatal(err)
	}
}

// nothingLeft reports whether no trace of an attachment is left.
func (bn *bench) nothingLeft(record store.Record) bool {
	bn.directory.mutex.Lock()
	_, claimed := bn.directory.owners[record.Addresses[0]]
	bn.directory.mutex.Unlock()
	bn.routes.mutex.Lock()
	announced := bn.routes.tables["rail0"].hasAny(hostPrefixes(record))
	bn.routes.mutex.Unlock()
	_, stored := bn.store.Get(record.Key)
	return !claimed && !announced && !stored && bn.sw.flowsOf(record.Number) == 0
}

// eventuallyNone waits until no attachment is stored, also none that leaves.
func (bn *bench) eventuallyNone() {
	bn.t.Helper()
	bn.eventually("no attachment is stored", func() bool { return len(bn.store.All()) == 0 })
}

// inOrder checks that the lines were written in this order.
func (bn *bench) inOrder(lines ...string) {
	bn.t.Helper()
	all := bn.diary.all()
	at := 0
	for _, line := range lines {
		found := slices.Index(all[at:], line)
		if found < 0 {
			bn.t.Fatalf("%q is missing or out of order:\n%v\nin\n%v", line, lines, all)
		}
		at += found + 1
	}
}

func expectKind(t *testing.T, err error, kind Kind) {
	t.Helper()
	var failure *Failure
	if !errors.As(err, &failure) || failure.Kind != kind || failure.Hint == "" {
		t.Fatalf("failure %+v (%v), want kind %d with a hint", failure, err, kind)
	}
}
