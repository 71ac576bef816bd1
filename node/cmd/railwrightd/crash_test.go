package main

import (
	"bytes"
	"os/exec"
	"regexp"
	"strconv"
	"syscall"
	"testing"
	"time"

	nodev1 "railwright/node/api/v1"
	"railwright/node/internal/announce/frrconfig"
	"railwright/node/internal/failpoint"
	"railwright/node/testlab"
)

// stream of pings of a pod that nobody touches.
type stream struct {
	command *exec.Cmd
	told    bytes.Buffer
}

func (one *pod) stream(t *testing.T, address string) *stream {
	t.Helper()
	made := &stream{command: one.Command("ping", "-i", "0.02", "-W", "2", address)}
	made.command.Stdout = &made.told
	if err := testlab.Start(made.command); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = made.command.Process.Kill() })
	return made
}

var answered = regexp.MustCompile(`icmp_seq=(\d+) ttl=`)

// lost before the last answer, of how many sent until then: what was on its way at the end is neither.
func (stream *stream) lost(t *testing.T) (lost, sent int) {
	t.Helper()
	_ = stream.command.Process.Signal(syscall.SIGINT)
	_ = stream.command.Wait()
	received := 0
	for _, found := range answered.FindAllStringSubmatch(stream.told.String(), -1) {
		received++
		sequence, _ := strconv.Atoi(found[1])
		sent = max(sent, sequence)
	}
	if received == 0 {
		t.Fatalf("ping told %q", stream.told.String())
	}
	return sent - received, sent
}

// mustDieAt the step, which a request comes by.
func (lab *nodeLab) mustDieAt(step failpoint.Name, request func() error) {
	lab.t.Helper()
	lab.start(step)
	lab.ready()
	// A DEL that is slow may be answered first: what is left of it is done after that, and comes by the step as well.
	err := request()
	state := lab.died().Sys().(syscall.WaitStatus)
	if !state.Signaled() || state.Signal() != syscall.SIGKILL {
		lab.t.Fatalf("%s: the daemon ended by itself: %v, %v", step, state, err)
	}
}

func (lab *nodeLab) add(one *pod) error {
	_, err := lab.client.Add(lab.soon(), one.add)
	return err
}

// TestADaemonKilledAtAnyStepLeavesNoOrphan: after each kill either the runtime asks again, or it deletes.
func TestADaemonKilledAtAnyStepLeavesNoOrphan(t *testing.T) {
	lab := newLab(t, testlab.FRR10, frrconfig.KernelTable)
	lab.startReady()
	untouched, one := lab.newPod(2, "tenant-a"), lab.newPod(3, "tenant-a")
	lab.mustAdd(untouched)
	testlab.Eventually(t, 2*time.Second, "the leaf has its routes", func() bool { return lab.leafHas(untouched) })
	pings := untouched.stream(t, remoteIPv4)
	lab.kill()
	for _, step := range failpoint.OfAdd() {
		lab.mustDieAt(step, func() error { return lab.add(one) })
		lab.startReady()
		if err := lab.remove(one); err != nil {
			t.Fatalf("DEL after a kill at %s: %v", step, err)
		}
		lab.mustBeGone(one)
		lab.kill()
	}
	deletes := failpoint.OfDelete()
	for i, step := range failpoint.OfAdd() {
		lab.mustDieAt(step, func() error { return lab.add(one) })
		lab.startReady()
		if err := lab.add(one); err != nil {
			t.Fatalf("ADD again after a kill at %s: %v %v", step, err, detailsOf(err))
		}
		testlab.Eventually(t, 2*time.Second, "the leaf has the routes", func() bool { return lab.leafHas(one) })
		lab.mustWork(one)
		lab.kill()
		lab.killDELAt(one, deletes[i])
	}
	for _, step := range deletes[len(failpoint.OfAdd()):] {
		lab.startReady()
		lab.mustAdd(one)
		lab.kill()
		lab.killDELAt(one, step)
	}
	lab.startReady()
	lab.mustWork(untouched)
	if lost, sent := pings.lost(t); lost > 0 || sent < 100 {
		t.Errorf("a pod that nobody touched lost %d of %d packets", lost, sent)
	} else {
		t.Logf("a pod that nobody touched lost none of %d packets", sent)
	}
}

func (lab *nodeLab) killDELAt(one *pod, step failpoint.Name) {
	lab.t.Helper()
	lab.mustDieAt(step, func() error { return lab.remove(one) })
	lab.startReady()
	if step == failpoint.DeleteAccepted {
		// Nothing was stored: the runtime's next DEL, or the pod's end, is what undoes it.
		if reply, err := lab.client.List(lab.soon(), &nodev1.ListRequest{}); err != nil || len(reply.GetAttached()) != 2 {
			lab.t.Fatalf("after a kill at %s: %v %v", step, reply, err)
		}
	}
	if err := lab.remove(one); err != nil {
		lab.t.Fatalf("DEL again after a kill at %s: %v", step, err)
	}
	lab.mustBeGone(one)
	lab.kill()
}
