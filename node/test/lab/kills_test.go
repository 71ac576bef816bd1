package lab

import (
	"testing"
	"time"

	"railwright/node/internal/failpoint"
)

// untouched pods' traffic while faults are made: probes between pods of one node and of two, and a TCP stream.
type untouched struct {
	near, far *probe
	stream    *stream
}

// bystanders are pods that nobody touches: two on the node where faults are, one on another.
type bystanders struct{ here, beside, far *pod }

func newBystanders(t *testing.T, fabric *fabric) *bystanders {
	t.Helper()
	node, other := fabric.nodes[0], fabric.nodes[1]
	return &bystanders{node.attachedPod(t, "red-1"), node.attachedPod(t, "red-2"), other.attachedPod(t, "red-1")}
}

func (pods *bystanders) talk(t *testing.T) *untouched {
	t.Helper()
	made := &untouched{
		near:   newProbe(t, pods.here.rail[0], pods.beside.rail[0], 4, probeEvery),
		far:    newProbe(t, pods.here.rail[1], pods.far.rail[1], 6, probeEvery),
		stream: newStream(t, pods.here.rail[0], pods.far.rail[0]),
	}
	for made.near.answered() == 0 || made.far.answered() == 0 {
		time.Sleep(time.Millisecond)
		if time.Since(made.near.began) > 5*time.Second {
			t.Fatal("untouched pods do not reach each other before anything was done")
		}
	}
	return made
}

// end and count; lossless: all that was sent must have come back.
func (untouched *untouched) end(t *testing.T, lossless bool) (near, far tally) {
	t.Helper()
	near, far = untouched.near.stop(), untouched.far.stop()
	pause, again := untouched.stream.stop(t)
	for where, found := range map[string]tally{"one node": near, "two nodes": far} {
		t.Logf("untouched pods of %s: %d of %d datagrams lost, longest outage %.2f s", where, found.sent-found.back, found.sent,
			found.outage.Seconds())
		if lossless && found.back < found.sent {
			t.Errorf("untouched pods of %s: %d of %d datagrams lost", where, found.sent-found.back, found.sent)
		}
	}
	t.Logf("TCP stream: all arrived in its order, longest pause %.2f s, %d segments sent again", pause.Seconds(), again)
	return near, far
}

// killsInADD: the daemon dies at each step of an ADD. The runtime deletes what failed while nobody answers; the daemon
// that comes back makes an end of it.
func killsInADD(t *testing.T, fabric *fabric) {
	node := fabric.nodes[0]
	for rail := range rails {
		for _, step := range failpoint.OfAdd() {
			if rail == 0 && step != failpoint.AddFlows && step != failpoint.AddAdvertised {
				continue // the source's chain asks twice: its own two ends are tried, the rest is the same
			}
			one := node.newPod(t, "red-1")
			node.kill(t)
			node.start(t, step)
			node.ready(t)
			if _, err := one.add(t, rail); err == nil {
				t.Fatalf("%s: ADD succeeded: it does not come by", step)
			}
			if !node.died(t) {
				t.Fatalf("%s: the daemon ended by itself", step)
			}
			if err := one.del(t, rail); err != nil {
				t.Fatalf("%s: DEL while the daemon is away: %v", step, err)
			}
			node.restart(t)
			fabric.mustSettle(t)
		}
	}
}

// killsInDEL: the daemon dies at each step of a DEL, and what comes back makes an end of it.
func killsInDEL(t *testing.T, fabric *fabric) {
	node := fabric.nodes[0]
	for _, step := range failpoint.OfDelete() {
		one := node.newPod(t, "red-1")
		if err := one.attach(t, 1); err != nil {
			t.Fatal(err)
		}
		node.kill(t)
		node.start(t, step)
		node.ready(t)
		if err := one.detach(t, 1); err != nil {
			t.Fatalf("%s: DEL: %v", step, err)
		}
		if !node.died(t) {
			t.Fatalf("%s: the daemon ended by itself", step)
		}
		node.restart(t)
		fabric.mustSettle(t)
	}
}

// kills of the daemon at every step, while untouched pods talk and lose nothing.
func kills(t *testing.T, fabric *fabric) {
	pods := newBystanders(t, fabric)
	fabric.mustSettle(t)
	traffic := pods.talk(t)
	t.Run("in ADD", func(t *testing.T) { killsInADD(t, fabric) })
	t.Run("in DEL", func(t *testing.T) { killsInDEL(t, fabric) })
	traffic.end(t, true)
}
