package main

import (
	"os"
	"strings"
	"testing"

	"railwright/node/testlab"
	"railwright/node/testlab/railnode"
)

// TestRetiredRail checks that a rail that is no longer configured serves its pods, and that nothing is left after their
// DEL.
func TestRetiredRail(t *testing.T) {
	for _, release := range []railnode.Release{railnode.NewFRR, railnode.OldFRR} {
		t.Run(release.String(), func(t *testing.T) {
			node := railnode.Alone(t, release, 2)
			lab := &nodeLab{node, t, node.Rails[0], node.Leaves[0]}
			lab.Configure(t, "{kind: local}")
			lab.restart()
			p, second := lab.newPod(2, "tenant-a"), lab.newPod(3, "tenant-a")
			lab.mustAdd(p, second)
			lab.kill()
			lab.withoutRail(t, lab.rail.Name())
			lab.Rails = lab.Rails[1:]
			lab.restart()
			if !p.reaches(second.add.GetAddresses()[0]) {
				t.Error("pods of the rail no longer reach each other")
			}
			testlab.Eventually(t, "routes at the leaf", func() bool { return lab.leafHas(p) && lab.leafHas(second) })
			for _, pod := range []*pod{p, second} {
				if err := lab.remove(pod); err != nil {
					t.Fatal(err, detailsOf(err))
				}
				lab.mustBeGone(pod)
			}
			testlab.Eventually(t, "removal of all flows and of the rail", func() bool {
				kept, err := os.ReadFile(lab.Path("state/rails.json"))
				return err == nil && !strings.Contains(string(kept), lab.rail.Name()) && lab.flowsNaming("cookie=0x7277") == 0
			})
		})
	}
}

// withoutRail removes a rail from the configuration.
func (nl *nodeLab) withoutRail(t *testing.T, name string) {
	t.Helper()
	content, err := os.ReadFile(nl.Config())
	if err != nil {
		t.Fatal(err)
	}
	var kept strings.Builder
	for line := range strings.Lines(string(content)) {
		if !strings.HasPrefix(line, "- {name: "+name+",") {
			kept.WriteString(line)
		}
	}
	if kept.Len() == len(content) {
		t.Fatalf("%s is not in\n%s", name, content)
	}
	if err := os.WriteFile(nl.Config(), []byte(kept.String()), 0o600); err != nil {
		t.Fatal(err)
	}
}
