package reconcile

import (
	"context"
	"net/netip"
	"testing"
	"time"

	"railwright/node/internal/attachment"
	"railwright/node/internal/plan"
)

// Unreached returns the addresses until deaf has counted down to 0.
func (f *fakeSwitch) Unreached(_ context.Context, _ plan.Rail, number uint16, addresses []netip.Addr) ([]netip.Addr, error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if f.deaf > 0 {
		f.deaf--
		f.write("asked %d", number)
		return addresses, f.away
	}
	f.write("forwards %d", number)
	return nil, f.away
}

func TestADDWaitsForForwardingIfConfigured(t *testing.T) {
	bench := newBench(t)
	bench.start()
	bench.mustAttach(1, bothParts...)
	if bench.diary.count("forwards 1")+bench.diary.count("asked 1") > 0 {
		t.Fatal("leaf was probed without forward_timeout", bench.diary.all())
	}
	bench.stop()
	bench.forwarding = 8 * time.Second
	bench.start()
	bench.sw.set(func() { bench.sw.deaf = 3 })
	bench.mustAttach(2, bothParts...)
	bench.inOrder("flows +2", "route +10.1.0.2/32", "advertised 10.1.0.2/32", "asked 2", "asked 2", "asked 2", "forwards 2")
	bench.stop()
	bench.forwarding = 100 * time.Millisecond
	bench.start()
	bench.sw.set(func() { bench.sw.deaf = 1 << 30 })
	_, err := bench.attach(sampleAttachment(3, bothParts...))
	expectKind(t, err, NotForwarded)
	bench.eventually("nothing is left", func() bool { return bench.diary.count("route -10.1.0.3/32") == 1 && bench.sw.flowsOf(3) == 0 })
	// Parts alone do not wait: without flows no packet is counted, and without a route none comes.
	for number, part := range []attachment.Part{attachment.Flows, attachment.Routes} {
		if _, err := bench.attach(sampleAttachment(4+number, part)); err != nil {
			t.Errorf("%s alone: %v", part, err)
		}
	}
}
