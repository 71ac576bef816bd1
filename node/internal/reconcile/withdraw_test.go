package reconcile

import (
	"strings"
	"testing"
	"time"

	"railwright/node/internal/attachment"
)

// TestAnAddressIsHeldUntilTheLeafHasWithdrawnIt: the DEL ends, and nobody else gets the address before the leaf has let go
// of it, or has kept it for as long as it does.
func TestAnAddressIsHeldUntilTheLeafHasWithdrawnIt(t *testing.T) {
	bench := newBench(t).start()
	bench.mustAttach(1, bothParts...)
	bench.routes.set(func() { bench.routes.kept = true })
	bench.mustDetach(1, bothParts...)
	if bench.diary.count("release 10.1.0.1") != 0 || bench.diary.count("route -10.1.0.1/32") != 1 || bench.diary.count("flows -1") != 1 {
		t.Fatal(bench.diary.all())
	}
	bench.inOrder("flows -1", "hold 10.1.0.1")
	bench.routes.set(func() { bench.routes.kept = false })
	bench.tend.again()
	bench.eventually("the address is released", func() bool { return bench.diary.count("release 10.1.0.1") == 1 })
	bench.inOrder("withdrawn 10.1.0.1/32", "release 10.1.0.1")

	// What no leaf has ever heard of is not held.
	bench.mustAttach(2, attachment.Flows)
	bench.routes.set(func() { bench.routes.kept = true })
	bench.mustDetach(2, attachment.Flows)
	if bench.diary.count("release 10.1.0.2") != 1 {
		t.Error(bench.diary.all())
	}

	// A leaf that tells nothing for longer than it keeps anything has let go.
	record := bench.mustAttach(3, bothParts...)
	bench.mustDetach(3, bothParts...)
	held := bench.withdrawals
	held.mutex.Lock()
	held.since[record.Key] = time.Now().Add(-mostHeld - time.Second)
	held.mutex.Unlock()
	bench.tend.again()
	bench.eventually("the address is released", func() bool { return bench.diary.count("release 10.1.0.3") == 1 })
}

// told to pods.
type logRecord struct{ lines []string }

func (t *logRecord) TellPod(pod attachment.Pod, reason, message string) {
	t.lines = append(t.lines, pod.Name+" "+reason+" "+message)
}

// TestAPodIsToldOfNodesThatHaveNotConfirmed, and the metric counts it.
func TestAPodIsToldOfNodesThatHaveNotConfirmed(t *testing.T) {
	bench, heard := newBench(t).start(), &logRecord{}
	bench.teller = heard
	bench.mustAttach(1, bothParts...)
	if len(heard.lines) != 1 || !strings.Contains(heard.lines[0], "NodesUnconfirmed") || !strings.Contains(heard.lines[0], "rail0 is up; not confirmed within") {
		t.Errorf("%q", heard.lines)
	}
}
