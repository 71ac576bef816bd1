package reconcile

import (
	"strings"
	"sync"
	"testing"
	"time"

	"railwright/node/internal/attachment"
	"railwright/node/internal/tenants"
)

// TestAddressIsReservedUntilTheLeafWithdrawsIt checks that the DEL ends, and that nobody else gets the address before
// the leaf has withdrawn it or has kept it for its maximum time.
func TestAddressIsReservedUntilTheLeafWithdrawsIt(t *testing.T) {
	bench := newBench(t).start()
	bench.mustAttach(1, bothParts...)
	bench.routes.set(func() { bench.routes.kept = true })
	bench.mustDetach(1, bothParts...)
	if bench.diary.count("release 10.1.0.1") != 0 || bench.diary.count("route -10.1.0.1/32") != 1 || bench.diary.count("flows -1") != 1 {
		t.Fatal(bench.diary.all())
	}
	bench.inOrder("flows -1", "withdraw 10.1.0.1")
	if listed := bench.List(t.Context()); len(listed) != 0 {
		t.Errorf("a reserved address is listed as an attachment: %v", listed)
	}
	bench.mustDetach(1, bothParts...) // as runtimes repeat it; it waits for nothing
	bench.routes.set(func() { bench.routes.kept = false })
	bench.tend.notify()
	bench.eventually("address is released", func() bool { return bench.diary.count("release 10.1.0.1") == 1 })
	bench.inOrder("withdrawn 10.1.0.1/32", "release 10.1.0.1")

	// An address that no leaf ever learned is not reserved.
	bench.mustAttach(2, attachment.Flows)
	bench.routes.set(func() { bench.routes.kept = true })
	bench.mustDetach(2, attachment.Flows)
	bench.eventually("address is released", func() bool { return bench.diary.count("release 10.1.0.2") == 1 })

	// After the maximum time the address is released even if the leaf did not confirm the withdrawal.
	record := bench.mustAttach(3, bothParts...)
	bench.mustDetach(3, bothParts...)
	held := bench.withdrawals
	held.mutex.Lock()
	held.since[record.Key] = time.Now().Add(-maxHeld - time.Second)
	held.mutex.Unlock()
	bench.tend.notify()
	bench.eventually("address is released", func() bool { return bench.diary.count("release 10.1.0.3") == 1 })
}

// fakeNotifier records events of pods.
type fakeNotifier struct {
	mutex sync.Mutex
	lines []string
}

func (t *fakeNotifier) NotifyPod(pod attachment.Pod, reason, message string) {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	t.lines = append(t.lines, pod.Name+" "+reason+" "+message)
}

// TestALostAddressCutsItsPodOff also checks that the pod is told, and served again once the address is claimed.
func TestALostAddressCutsItsPodOff(t *testing.T) {
	bench, notifier := newBench(t), &fakeNotifier{}
	bench.start()
	bench.notifier = notifier
	record := bench.mustAttach(1, bothParts...)
	bench.directory.change(func() {
		bench.directory.refuse = tenants.ErrTaken
		delete(bench.directory.owners, record.Addresses[0])
	})
	bench.eventually("the flows are gone", func() bool { return bench.sw.flowsOf(record.Number) == 0 })
	notifier.mutex.Lock()
	if len(notifier.lines) != 1 || !strings.Contains(notifier.lines[0], "pod-1 AddressLost") {
		t.Errorf("%q", notifier.lines)
	}
	notifier.mutex.Unlock()
	bench.directory.change(func() { bench.directory.refuse = nil })
	bench.eventually("the flows are back", func() bool { return bench.sw.flowsOf(record.Number) > 0 })
}

// TestADeviceIsFreeBeforeTheAddresses checks that the next pod may have a VF while the addresses of the last one are reserved,
// also over a restart.
func TestADeviceIsFreeBeforeTheAddresses(t *testing.T) {
	bench := newBench(t).start()
	onVF := func(pod int) attachment.Attachment {
		want := sampleAttachment(pod, bothParts...)
		want.HostInterface, want.DeviceID = "veth1", "0000:17:00.2"
		return want
	}
	if _, err := bench.attach(onVF(1)); err != nil {
		t.Fatal(err)
	}
	bench.routes.set(func() { bench.routes.kept = true })
	bench.mustDetach(1, bothParts...)
	if _, err := bench.attach(onVF(2)); err != nil {
		t.Fatal(err)
	}
	bench.stop()
	bench.start()
	if listed := bench.List(t.Context()); len(bench.store.All()) != 2 || len(listed) != 1 || listed[0].HostInterface != "veth1" {
		t.Errorf("%v, listed %v", bench.store.All(), listed)
	}
	bench.routes.set(func() { bench.routes.kept = false })
	bench.tend.notify()
	bench.eventually("the addresses of the first are given up", func() bool { return len(bench.store.All()) == 1 })
	if bench.diary.count("port -veth1 /run/netns/n1") != 0 {
		t.Error("the port of the second pod was removed")
	}
}
