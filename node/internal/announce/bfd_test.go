package announce

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"railwright/node/internal/announce/frrconfig"
	"railwright/node/testlab"
)

// TestBFDNoticesADeadPath checks that BFD, not the hold time, ends the session of a silent path, and that all routes
// return after a restart of bgpd. The leaf usually keeps the routes during the restart, but need not: a BFD session
// that is established again may count as a failure.
func TestBFDNoticesADeadPath(t *testing.T) {
	t.Parallel()
	fabric := newFabric(t, testlab.FRR10, frrconfig.KernelTable, "bfdd")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	fabric.enableBFD(t)
	fabric.waitBFD(t)
	fabric.waitSessions(t)
	announcer := fabric.announcer(t, frrconfig.KernelTable)
	bench := &bench{fabric, announcer, frrconfig.KernelTable, announcer.Events(ctx)}
	afterRestart(t, bench, false, func() {
		bench.frr.Kill(t, "bgpd")
		bench.frr.Start(t, "bgpd")
	})
	fabric.waitBFD(t)
	fabric.frr.Freeze(t, "bfdd")
	began := time.Now()
	for rail := range fabric.rails {
		fabric.leaves[rail].expect(t, nil)
	}
	t.Logf("routes of the silent path were withdrawn after %.2f s", time.Since(began).Seconds())
	for _, leaf := range fabric.leaves {
		// Cease, BFD Down: RFC 9384.
		if neighbors := leaf.frr.Show(t, "show bgp neighbors json"); !strings.Contains(neighbors, `"lastErrorCodeSubcode":"060A"`) {
			t.Errorf("BFD did not end the session: %s", neighbors)
		}
		leaf.frr.Freeze(t, "bfdd")
		defer leaf.frr.Thaw(t, "bfdd")
	}
	// Now the node's own BFD is down, and its bgpd waits for it. The leaf can be reached, so the state must name BFD.
	fabric.frr.Thaw(t, "bfdd")
	fabric.waitState(t, ", BFD Down")
	testlab.UntilRight(t, func() string {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := announcer.WaitAdvertised(ctx, fabric.rails[0], pods(0, 0, 1))
		if err != nil && strings.Contains(err.Error(), "check that the leaf runs BFD") {
			return ""
		}
		return fmt.Sprintf("error of a route that waits for BFD: %v", err)
	})
}
