package reconcile

import (
	"errors"
	"slices"
	"testing"
	"time"

	"railwright/node/internal/collect"
	"railwright/node/internal/openvswitch"
)

func TestPortWithoutRecordIsRemovedAfterItsPod(t *testing.T) {
	bench := newBench(t).start()
	bench.stop() // stops the housekeeping
	const gone = "/run/netns/none"
	bench.pods.set(gone, collect.Gone)
	orphan := openvswitch.PodPort{HostInterface: "pf0r3", Netns: gone}
	bench.sw.podPorts = []openvswitch.PodPort{orphan, {HostInterface: "pf0r4", Netns: "/run/netns/lives"}}
	removed := "port -pf0r3 " + gone
	bench.garbage.grace = time.Hour
	known := orphans{}

	bench.sweepPorts(t.Context(), known)
	bench.sweepPorts(t.Context(), known)
	if bench.diary.count(removed) != 0 || len(known) != 1 {
		t.Errorf("within the grace: %v, known %v", bench.diary.all(), known)
	}
	bench.pods.set(gone, collect.Unknown)
	bench.garbage.grace = 0
	bench.sweepPorts(t.Context(), known)
	if bench.diary.count(removed) != 0 || len(known) != 0 {
		t.Errorf("pod in unknown state: %v, known %v", bench.diary.all(), known)
	}
	bench.pods.set(gone, collect.Gone)
	bench.sw.away = errors.New("away")
	bench.sweepPorts(t.Context(), known)
	bench.sw.away = nil
	bench.sweepPorts(t.Context(), known)
	if bench.diary.count(removed) != 0 {
		t.Errorf("first look: %v", bench.diary.all())
	}
	bench.sweepPorts(t.Context(), known)
	if bench.diary.count(removed) != 1 {
		t.Errorf("after the grace: %v", bench.diary.all())
	}
	if slices.ContainsFunc(bench.diary.all(), func(line string) bool { return line == "port -pf0r4 /run/netns/lives" }) {
		t.Error("port of a live pod was removed")
	}
}
