package lab

import (
	"slices"
	"sync"
	"testing"
	"time"

	"railwright/node/internal/failpoint"
	"railwright/node/testlab"
)

// untouched is the traffic between pods that a fault must not affect, over all rails: probes between pods of one node
// and of two nodes, and a TCP stream.
type untouched struct {
	near, far []*probe
	streams   []*stream
}

// bystanders are pods that no test changes: two on the node with the faults, one on another.
type bystanders struct{ here, beside, far *pod }

func newBystanders(t *testing.T, fabric *fabric) *bystanders {
	t.Helper()
	node, other := fabric.nodes[0], fabric.nodes[1]
	return &bystanders{node.attachedPod(t, "red-1"), node.attachedPod(t, "red-2"), other.attachedPod(t, "red-1")}
}

func (by *bystanders) talk(t *testing.T) *untouched {
	t.Helper()
	made, families := &untouched{}, [rails]int{4, 6}
	for rail, here := range by.here.rail {
		made.near = append(made.near, newProbe(t, here, by.beside.rail[rail], families[rail], pace()))
		made.far = append(made.far, newProbe(t, here, by.far.rail[rail], families[rails-1-rail], pace()))
		made.streams = append(made.streams, newStream(t, here, by.far.rail[rail]))
	}
	testlab.Eventually(t, "untouched pods reach each other before anything is done", func() bool {
		return !slices.ContainsFunc(slices.Concat(made.near, made.far), func(p *probe) bool { return p.countAnswered() == 0 })
	})
	return made
}

// end stops the traffic and returns its tallies. If lossless is set, it fails the test unless all datagrams came back.
func (u *untouched) end(t *testing.T, lossless bool) (near, far tally) {
	t.Helper()
	// Stop all probes concurrently, because each waits for missing datagrams.
	bound := forStragglers
	if lossless {
		bound = patience
	}
	testlab.AtOnce(t, func() { near = total(u.near, bound) }, func() { far = total(u.far, bound) }, func() {
		for rail, stream := range u.streams {
			pause, again := stream.stop(t)
			t.Logf("TCP stream over %s: all data arrived in order, longest pause %.2f s, %d segments retransmitted", railName(rail),
				pause.Seconds(), again)
		}
	})
	for where, found := range map[string]tally{"one node": near, "two nodes": far} {
		t.Logf("untouched pods of %s: %d of %d datagrams lost, longest outage %.2f s", where, found.sent-found.back, found.sent,
			found.outage.Seconds())
		if lossless && found.back < found.sent {
			t.Errorf("untouched pods of %s: %d of %d datagrams lost", where, found.sent-found.back, found.sent)
		}
	}
	return near, far
}

// total stops all probes concurrently, each with the given patience, and returns their sum. Its outage is the longest
// of all.
func total(probes []*probe, patience time.Duration) tally {
	var sum tally
	var mutex sync.Mutex
	var group sync.WaitGroup
	for _, p := range probes {
		group.Go(func() {
			found := p.stop(patience)
			mutex.Lock()
			defer mutex.Unlock()
			sum = tally{sum.sent + found.sent, sum.arrived + found.arrived, sum.back + found.back, max(sum.outage, found.outage)}
		})
	}
	group.Wait()
	return sum
}

// killsInADD kills the daemon at each step of an ADD. The runtime calls DEL while no daemon runs, and the restarted
// daemon completes it.
func killsInADD(t *testing.T, fabric *fabric, rail int, steps ...failpoint.Name) {
	node := fabric.nodes[0]
	for _, step := range steps {
		pod := node.newPod(t, "red-1")
		node.Kill(t)
		node.Start(t, step)
		node.Ready(t)
		if _, err := pod.add(t, rail); err == nil {
			t.Fatalf("%s: ADD must reach this step, but it succeeded", step)
		}
		node.MustBeKilled(t, step)
		if err := node.runtime.delete(t, node.runtime.impatient[rail], pod.conf(rail)); err != nil {
			t.Fatalf("%s: DEL while the daemon is away: %v", step, err)
		}
		node.Restart(t)
		fabric.mustSettle(t)
	}
}

// killsInDEL kills the daemon at each step of a DEL. The restarted daemon completes it.
func killsInDEL(t *testing.T, fabric *fabric, rail int, steps ...failpoint.Name) {
	node := fabric.nodes[0]
	for _, step := range steps {
		pod := node.newPod(t, "red-1")
		if err := pod.attach(t, rail); err != nil {
			t.Fatal(err)
		}
		node.Kill(t)
		node.Start(t, step)
		node.Ready(t)
		if err := pod.detach(t, rail); err != nil {
			t.Fatalf("%s: DEL: %v", step, err)
		}
		node.MustBeKilled(t, step)
		node.Restart(t)
		fabric.mustSettle(t)
	}
}

// kills kills the daemon at every step. Other pods must lose no packet meanwhile.
func kills(t *testing.T, fabric *fabric) {
	pods := newBystanders(t, fabric)
	fabric.mustSettle(t)
	traffic := pods.talk(t)
	// Rail 1's chain calls the daemon once for both parts, so all steps are tried there. Rail 0's calls it twice, for
	// flows and for routes; only the steps between the two calls differ.
	t.Run("in ADD, asked once", func(t *testing.T) { killsInADD(t, fabric, 1, failpoint.AddSteps()...) })
	t.Run("in DEL, asked once", func(t *testing.T) { killsInDEL(t, fabric, 1, failpoint.DeleteSteps()...) })
	t.Run("in ADD, asked twice", func(t *testing.T) { killsInADD(t, fabric, 0, failpoint.AddFlows, failpoint.AddAdvertised) })
	t.Run("in DEL, asked twice", func(t *testing.T) {
		killsInDEL(t, fabric, 0, failpoint.DeleteWithdrawn, failpoint.DeleteFlows, failpoint.DeleteRemoved)
	})
	traffic.end(t, true)
}
