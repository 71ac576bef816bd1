package announce

import (
	"context"
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
	defer fabric.frr.Thaw(t, "bfdd")
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
	}
}
