package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"railwright/node/testlab"
)

// datagramsPerPair is the number of datagrams in each direction between pods that may communicate, and the minimum
// between pods that may not.
const datagramsPerPair = 20

// isolation sends between all pods of all tenants, over all rails and both families.
func isolation(t *testing.T, fabric *fabric) {
	first, other := fabric.nodes[0], fabric.nodes[len(fabric.nodes)-1]
	pods := []*pod{
		first.attachedPod(t, "red-1"), first.attachedPod(t, "red-2"), other.attachedPod(t, "red-1"),
		first.attachedPod(t, "alone"), other.attachedPod(t, "alone"), other.attachedPod(t, "green"), first.attachedPod(t, "blue"),
	}
	fabric.mustSettle(t)
	for _, pod := range pods {
		pod.routeAcross(t)
	}
	watched := map[*attached]*testlab.Wire{}
	for _, pod := range pods {
		for _, face := range pod.rail {
			watched[face] = testlab.OpenWire(t, pod.Namespace, faceOf(face.rail))
		}
	}
	t.Run("one tenant: nothing is lost, the other way neither", func(t *testing.T) {
		eachPair(pods, func(from, to *attached, family int) {
			if tenantOf(from) != tenantOf(to) && !peered(from, to) {
				return
			}
			if found := reaches(t, from, to, family, datagramsPerPair); found.arrived < found.sent || found.back < found.sent {
				t.Errorf("%s: %+v", path(from, to, family), found)
			}
		})
	})
	for _, wire := range watched {
		wire.Forget()
	}
	t.Run("another tenant: nothing arrives", func(t *testing.T) {
		pairs, sent := 0, 0
		eachPair(pods, func(from, to *attached, family int) {
			if tenantOf(from) == tenantOf(to) || peered(from, to) {
				return
			}
			frames := shout(t, from, to, family)
			pairs, sent = pairs+1, sent+frames
		})
		// Earlier packets have been processed once a later one is answered.
		eachPair(pods, func(from, to *attached, family int) {
			if tenantOf(from) == tenantOf(to) || peered(from, to) {
				reaches(t, from, to, family, 1)
			}
		})
		for face, wire := range watched {
			if arrived := wire.Frames(isShout); len(arrived) > 0 {
				t.Errorf("%d frames arrived at %s of %s: %s", len(arrived), face.ipv4, face.pod.namespace, testlab.FrameText(arrived[0]))
			}
		}
		if pairs == 0 {
			t.Error("no pair was tried")
		}
		t.Logf("0 of %d datagrams arrived over %d paths between tenants", sent, pairs)
	})
	t.Run("a peering that ends, ends", func(t *testing.T) { peeringEnds(t, fabric, pods[5], pods[6]) })
}

// routeAcross adds routes to the other rails through each of the pod's rails, as a workload on all rails has.
func (p *pod) routeAcross(t *testing.T) {
	t.Helper()
	// The source rules that finish created select the interface of a packet by its source address.
	for _, family := range []string{"-4", "-6"} {
		if rules := p.IP(t, family, "rule"); strings.Count(rules, "lookup 10") != rails {
			t.Fatalf("rules of %s: %s", p.name, rules)
		}
	}
}

func tenantOf(face *attached) string {
	if strings.HasPrefix(face.pod.namespace, "red-") {
		return "red"
	}
	return face.pod.namespace
}

func peered(a, other *attached) bool {
	both := []string{tenantOf(a), tenantOf(other)}
	return slices.Contains(both, "green") && slices.Contains(both, "blue")
}

// eachPair calls try for each pair of interfaces of two pods, on the same rail and on two rails, for both families and
// in both directions.
func eachPair(pods []*pod, try func(from, to *attached, family int)) {
	for _, from := range pods {
		for _, to := range pods {
			if from == to {
				continue
			}
			for _, mine := range from.rail {
				for _, theirs := range to.rail {
					try(mine, theirs, 4)
					try(mine, theirs, 6)
				}
			}
		}
	}
}

func path(from, to *attached, family int) string {
	return fmt.Sprintf("%s on %s by %s to %s on %s by %s, IPv%d", from.pod.namespace, from.pod.node.Name(), railName(from.rail),
		to.pod.namespace, to.pod.node.Name(), railName(to.rail), family)
}

// shoutText is the content of datagrams that nobody may receive.
const shoutText = "railwright: nobody may read this"

func isShout(frame []byte) bool { return strings.Contains(string(frame), shoutText) }

// shout sends datagrams that must not arrive anywhere.
func shout(t *testing.T, from, to *attached, family int) int {
	t.Helper()
	socket, err := listen(from.pod, from.address(family), 0)
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	for range datagramsPerPair {
		if err := sendTo(socket, to.address(family), []byte(shoutText)); err != nil {
			t.Fatal(err)
		}
	}
	return datagramsPerPair
}

func peeringEnds(t *testing.T, fabric *fabric, green, blue *pod) {
	tenants := filepath.Join(fabric.folder, "tenants", "tenants.json")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(tenants+".new", []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(tenants+".new", tenants); err != nil {
			t.Fatal(err)
		}
	}
	defer write(tenantsFile)
	write(`{"tenants": [{"name": "red", "namespaces": ["red-1", "red-2"]}]}`)
	// A short bound is enough, because the caller repeats this.
	reach := func() int { return reachesWithin(t, green.rail[0], blue.rail[0], 4, 1, 100*time.Millisecond).back }
	testlab.Eventually(t, "green no longer reaches blue", func() bool { return reach() == 0 })
	write(tenantsFile)
	testlab.Eventually(t, "green reaches blue again", func() bool { return reach() > 0 })
}
