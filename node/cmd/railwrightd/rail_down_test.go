package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"railwright/node/testlab"
	"railwright/node/testlab/railnode"
)

// TestARailThatIsDownIsReportedUntilItReturns cuts the uplink's cable and ends the session with the leaf. The metric is
// set at the moment at which the Node's condition and taint are written, if there is a Node. A measurement repeats it.
func TestARailThatIsDownIsReportedUntilItReturns(t *testing.T) {
	t.Parallel()
	lab := newLab(t, railnode.NewFRR)
	lab.restart()
	lab.Ready(t)
	rounds := 1
	if railnode.Measuring() != "" {
		rounds = 10
	}
	await := func(value, when string) {
		t.Helper()
		testlab.Eventually(t, "the rail's metric is "+value+" "+when, func() bool {
			return strings.Contains(lab.scrape(t, "/metrics"), `railwright_rail_up{rail="rail0"} `+value)
		})
	}
	router := fmt.Sprintf("router bgp %d", railnode.FirstLeafASN)
	neighbor := fmt.Sprintf("neighbor %v shutdown", lab.rail.Address())
	took := map[string][]float64{}
	for range rounds {
		for name, fault := range map[string]struct{ lose, mend func() }{
			"cable": {
				func() { lab.leaf.IP(t, "link", "set", lab.rail.LeafPort(), "down") },
				func() {
					lab.leaf.IP(t, "link", "set", lab.rail.LeafPort(), "up")
					lab.leaf.GiveAddresses(t, lab.Node)
				},
			},
			"session": {
				func() { lab.leaf.FRR.Show(t, "configure terminal", router, neighbor) },
				func() { lab.leaf.FRR.Show(t, "configure terminal", router, "no "+neighbor) },
			},
		} {
			await("1", "before")
			fault.lose()
			began := time.Now()
			await("0", "without the "+name)
			took[name] = append(took[name], time.Since(began).Seconds())
			fault.mend()
		}
	}
	await("1", "at the end")
	t.Logf("figure: from the loss to the report, in s: %v", took)
	railnode.Keep(t, took)
}
