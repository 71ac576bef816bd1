package openvswitch

import (
	"io"
	"net"
	"path/filepath"
	"sync/atomic"
	"testing"
)

// TestOfctlRetriesDroppedConnections puts a proxy in place of a bridge's socket that drops the first connections, as
// ovs-vswitchd does under load, and forwards the others.
func TestOfctlRetriesDroppedConnections(t *testing.T) {
	t.Parallel()
	rail := newLab(t)
	want := rail.program(t)
	settings := rail.settings(t)
	onto := settings.management(bridgeName)
	settings.Management = t.TempDir()
	hangUps := &atomic.Int32{}
	startProxy(t, filepath.Join(settings.Management, bridgeName+".mgmt"), onto, hangUps)
	client := &Client{settings: settings}
	for _, test := range []struct {
		hangUps int32
		works   bool
	}{{0, true}, {maxAttempts - 1, true}, {maxAttempts, false}} {
		hangUps.Store(test.hangUps)
		differing, err := client.compare(t.Context(), bridgeName, want[1:])
		if works := err == nil && differing.count() == 1; works != test.works {
			t.Errorf("after %d dropped connections: %v %v", test.hangUps, differing, err)
		}
	}
}

// startProxy listens on a socket, drops hangUps connections, and forwards the rest.
func startProxy(t *testing.T, path, onto string, hangUps *atomic.Int32) {
	t.Helper()
	listener, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			connection, err := listener.Accept()
			if err != nil {
				return
			}
			if hangUps.Add(-1) >= 0 {
				_ = connection.Close()
				continue
			}
			onward, err := net.Dial("unix", onto)
			if err != nil {
				_ = connection.Close()
				continue
			}
			for _, pair := range [][2]net.Conn{{onward, connection}, {connection, onward}} {
				go func() {
					_, _ = io.Copy(pair[0], pair[1])
					_ = pair[0].Close()
				}()
			}
		}
	}()
}
