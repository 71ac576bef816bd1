//go:build vmguest

package guest

import "testing"

// TestVFs is all that one node shows whose daemon goes on running: a start of the machine and of its services takes longer
// than any of the parts. Each part leaves nothing to the next.
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
			part.of(t, started)
			started.wantNothingLeft(t)
		})
	}
}
