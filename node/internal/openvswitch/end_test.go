package openvswitch

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"railwright/node/testlab"
)

// running returns the stacks of goroutines of this package and its libraries, except the test's own.
func running() string {
	buffer := make([]byte, 1<<20)
	stacks := string(buffer[:runtime.Stack(buffer, true)])
	var found []string
	for stack := range strings.SplitSeq(stacks, "\n\n") {
		for _, of := range []string{"internal/openvswitch.(*", "netlink", "libovsdb", "rpc2"} {
			if strings.Contains(stack, of) {
				found = append(found, stack)
				break
			}
		}
	}
	return strings.Join(found, "\n\n")
}

// stir makes the kernel report changes until calm is called.
func (l *lab) stir() (calm func()) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
			}
			_, _ = l.host.Try("ip", "addr", "replace", "10.9.9.9/32", "dev", bridgeName)
			_, _ = l.host.Try("ip", "addr", "del", "10.9.9.9/32", "dev", bridgeName)
		}
	}()
	return func() {
		close(stop)
		<-stopped
	}
}

// TestNothingRunsAfterClose checks that Close ends all goroutines, also while events pour in and while Open vSwitch
// does not run. It is not parallel, because clients of other tests would be running.
func TestNothingRunsAfterClose(t *testing.T) {
	rail := newLab(t)
	rail.client.Close()
	for range 3 {
		client := rail.newClient(t)
		if _, err := client.Facts(t.Context(), rail.rail); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		events := client.Events(ctx)
		calm := rail.stir()
		<-events
		client.Close()
		cancel()
		calm()
	}
	settings := rail.settings(t)
	settings.Database, settings.Management = "/nowhere/db.sock", "/nowhere"
	client, err := New(t.Context(), settings)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := client.Facts(t.Context(), rail.rail); err == nil || !strings.Contains(err.Error(), "/nowhere/db.sock") {
		t.Errorf("facts without Open vSwitch: %v", err)
	}
	client.Close()
	left := running()
	for until := time.Now().Add(testlab.Patience); left != "" && time.Now().Before(until); left = running() {
		time.Sleep(10 * time.Millisecond)
	}
	if left != "" {
		t.Errorf("still running:\n%s", left)
	}
}
