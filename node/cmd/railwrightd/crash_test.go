package main

import (
	"bytes"
	"os/exec"
	"regexp"
	"strconv"
	"syscall"
	"testing"

	nodev1 "railwright/node/api/v1"
	"railwright/node/internal/failpoint"
	"railwright/node/testlab"
	"railwright/node/testlab/railnode"
)

// stream of pings of a pod that nobody touches.
type stream struct {
	command *exec.Cmd
	told    bytes.Buffer
}

func (p *pod) stream(t *testing.T, address string) *stream {
	t.Helper()
	made := &stream{command: p.Command("ping", "-i", "0.02", "-W", "2", address)}
	made.command.Stdout = &made.told
	if err := testlab.Start(made.command); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = made.command.Process.Kill() })
	return made
}

var answered = regexp.MustCompile(`icmp_seq=(\d+) ttl=`)

// lost before the last answer, of how many sent until then: what was on its way at the end is neither.
func (s *stream) lost(t *testing.T) (lost, sent int) {
	t.Helper()
	_ = s.command.Process.Signal(syscall.SIGINT)
	_ = s.command.Wait()
	received := 0
	for _, found := range answered.FindAllStringSubmatch(s.told.String(), -1) {
		received++
		sequence, _ := strconv.Atoi(found[1])
		sent = max(sent, sequence)
	}
	if received == 0 {
		t.Fatalf("ping told %q", s.told.String())
	}
	return sent - received, sent
}

// mustDieAt the step, which a request comes by.
func (nl *nodeLab) mustDieAt(step failpoint.Name, request func() error) {
	nl.t.Helper()
	nl.startAt(step)
	// A DEL that is slow may be answered first: what is left of it is done after that, and comes by the step as well.
	_ = request()
	nl.MustBeKilled(nl.t, step)
}

func (nl *nodeLab) add(p *pod) error {
	_, err := nl.Client.Add(railnode.Soon(nl.t), p.add)
	return err
}

// TestADaemonKilledAtAnyStepLeavesNoOrphan: after each kill the runtime asks again. What comes of a runtime that deletes
// instead, on all rails, is tried in test/lab.
func TestADaemonKilledAtAnyStepLeavesNoOrphan(t *testing.T) {
	for _, of := range []struct {
		release      railnode.Release
		adds, delete []failpoint.Name
	}{
		{railnode.NewFRR, failpoint.AddSteps(), failpoint.DeleteSteps()},
		// Only the steps at which FRR is told something are another program's.
		{
			railnode.OldFRR, []failpoint.Name{failpoint.AddFlows, failpoint.AddRoutes, failpoint.AddAdvertised},
			[]failpoint.Name{failpoint.DeleteStored, failpoint.DeleteWithdrawn},
		},
	} {
		t.Run(of.release.String(), func(t *testing.T) {
			lab := newLab(t, of.release)
			lab.restart()
			untouched := lab.newPod(2, "tenant-a")
			lab.mustAdd(untouched)
			testlab.Eventually(t, "the leaf has its routes", func() bool { return lab.leafHas(untouched) })
			pings := untouched.stream(t, remoteIPv4)
			lab.kill()
			lab.killAtEach(of.adds, of.delete)
			lab.restart()
			lab.mustWork(untouched)
			if lost, sent := pings.lost(t); lost > 0 || sent < 100 {
				t.Errorf("a pod that nobody touched lost %d of %d packets", lost, sent)
			} else {
				t.Logf("a pod that nobody touched lost none of %d packets", sent)
			}
		})
	}
}

// killAtEach step of ADD and of DEL. An ADD that is asked again leaves what the next DEL is killed at.
func (nl *nodeLab) killAtEach(adds, deletes []failpoint.Name) {
	nl.t.Helper()
	pod := nl.newPod(3, "tenant-a")
	for n := range max(len(adds), len(deletes)) {
		step := failpoint.Name("")
		if n < len(adds) {
			step = adds[n]
			nl.mustDieAt(step, func() error { return nl.add(pod) })
		}
		nl.restart()
		if err := nl.add(pod); err != nil {
			nl.t.Fatalf("ADD after a kill at %q: %v %v", step, err, detailsOf(err))
		}
		testlab.Eventually(nl.t, "the leaf has the routes", func() bool { return nl.leafHas(pod) })
		nl.mustWork(pod)
		if n < len(deletes) {
			nl.kill()
			nl.killDELAt(pod, deletes[n])
		} else if err := nl.remove(pod); err != nil {
			nl.t.Fatal(err)
		} else {
			nl.kill()
		}
	}
}

func (nl *nodeLab) killDELAt(p *pod, step failpoint.Name) {
	nl.t.Helper()
	nl.mustDieAt(step, func() error { return nl.remove(p) })
	nl.restart()
	if step == failpoint.DeleteAccepted {
		// Nothing was stored: the runtime's next DEL, or the pod's end, is what undoes it.
		if reply, err := nl.Client.List(railnode.Soon(nl.t), &nodev1.ListRequest{}); err != nil || len(reply.GetAttached()) != 2 {
			nl.t.Fatalf("after a kill at %s: %v %v", step, reply, err)
		}
	}
	if err := nl.remove(p); err != nil {
		nl.t.Fatalf("DEL again after a kill at %s: %v", step, err)
	}
	nl.mustBeGone(p)
	nl.kill()
}
