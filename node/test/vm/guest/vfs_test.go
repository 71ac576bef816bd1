//go:build vmguest

package guest

import "testing"

// TestVFs runs all parts on a single node with a running daemon, because booting the machine and its services takes
// longer than any part. No part leaves anything behind. With -short it omits the figures, which assert counts alone.
func TestVFs(t *testing.T) {
	started := startNode(t, t.TempDir())
	started.startDaemon(t)
	for _, part := range []struct {
		name string
		of   func(*testing.T, *node)
	}{
		{"offload", offload},
		{"rdma", rdma},
		{"figures", figures},
	} {
		t.Run(part.name, func(t *testing.T) {
			if part.name == "figures" && testing.Short() {
				t.Skip("figures are for a run by hand")
			}
			part.of(t, started)
			started.wantNothingLeft(t)
		})
	}
}
