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

// stream is a series of pings of a pod that must not be affected.
type stream struct {
	command *exec.Cmd
	output  bytes.Buffer
}

func (p *pod) stream(t *testing.T, address string) *stream {
	t.Helper()
	made := &stream{command: p.Command("ping", "-i", "0.02", "-W", "2", address)}
	made.command.Stdout = &made.output
	if err := testlab.Start(made.command); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = made.command.Process.Kill() })
	return made
}

var answered = regexp.MustCompile(`icmp_seq=(\d+) ttl=`)

// countLost returns the lost and sent packets up to the last reply, because later packets may be on their way.
func (s *stream) countLost(t *testing.T) (lost, sent int) {
	t.Helper()
	_ = s.command.Process.Signal(syscall.SIGINT)
	_ = s.command.Wait()
	received := 0
	for _, found := range answered.FindAllStringSubmatch(s.output.String(), -1) {
		received++
		sequence, _ := strconv.Atoi(found[1])
		sent = max(sent, sequence)
	}
	if received == 0 {
		t.Fatalf("ping printed %q", s.output.String())
	}
	return sent - received, sent
}

// mustDieAt kills the daemon at a step of a request.
func (nl *nodeLab) mustDieAt(step failpoint.Name, request func() error) {
	nl.t.Helper()
	nl.startAt(step)
	// A slow DEL may get its reply first; the daemon reaches the step afterwards.
	_ = request()
	nl.MustBeKilled(nl.t, step)
}

func (nl *nodeLab) add(p *pod) error {
	_, err := nl.Client.Add(railnode.Soon(nl.t), p.add)
	return err
}

// TestKilledDaemonLeavesNoOrphan repeats the request after each kill, as a runtime does. test/lab covers runtimes that
// delete instead, on all rails.
func TestKilledDaemonLeavesNoOrphan(t *testing.T) {
	for _, test := range []struct {
		release      railnode.Release
		adds, delete []failpoint.Name
	}{
		{railnode.NewFRR, failpoint.AddSteps(), failpoint.DeleteSteps()},
		// Only the steps that involve FRR differ with the release.
		{
			railnode.OldFRR, []failpoint.Name{failpoint.AddFlows, failpoint.AddRoutes, failpoint.AddAdvertised},
			[]failpoint.Name{failpoint.DeleteStored, failpoint.DeleteWithdrawn},
		},
	} {
		t.Run(test.release.String(), func(t *testing.T) {
			lab := newLab(t, test.release)
			lab.restart()
			untouched := lab.newPod(2, "tenant-a")
			lab.mustAdd(untouched)
			testlab.Eventually(t, "routes at the leaf", func() bool { return lab.leafHas(untouched) })
			pings := untouched.stream(t, remoteIPv4)
			lab.kill()
			lab.killAtEach(test.adds, test.delete)
			lab.restart()
			lab.mustWork(untouched)
			if lost, sent := pings.countLost(t); lost > 0 || sent < 100 {
				t.Errorf("unaffected pod lost %d of %d packets", lost, sent)
			} else {
				t.Logf("unaffected pod lost none of %d packets", sent)
			}
		})
	}
}

// killAtEach kills the daemon at each step of ADD and of DEL. The repeated ADD leaves an attachment for the next DEL.
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
		testlab.Eventually(nl.t, "routes at the leaf", func() bool { return nl.leafHas(pod) })
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
		// Nothing was stored, so the runtime's next DEL or the pod's end undoes it.
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
