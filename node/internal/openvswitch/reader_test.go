package openvswitch

import (
	"bufio"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"railwright/node/testlab"
)

// TestReaderChangesNoFlow checks that a reader never changes a bridge, because the daemon would repair it. `railwrightd
// flows` once did, next to a daemon that then saw one flow too many.
func TestReaderChangesNoFlow(t *testing.T) {
	t.Parallel()
	rail := newLab(t)
	rail.addPod(t, 2, "a")
	rail.program(t)
	changes := rail.watchFlows(t)

	for range 3 {
		reader, err := NewReader(t.Context(), rail.settings(t))
		if err != nil {
			t.Fatal(err)
		}
		testlab.Eventually(t, "datapath can be read", func() bool {
			_, err = reader.Datapath(t.Context())
			return err == nil
		})
		if _, err := reader.Counters(t.Context(), bridgeName); err == nil {
			t.Error("reader knows a bridge")
		}
		reader.Close()
	}

	// Changes reported after this flow were made after all of the above.
	const ours = "cookie=0x7"
	rail.open.Ofctl(t, bridgeName, "add-flow", "table=62,"+ours+",actions=drop")
	for line := range changes {
		if slices.Contains(strings.Fields(line), ours) {
			return
		}
		t.Errorf("reading the datapath changed the bridge: %s", line)
	}
	t.Error("bridge did not report the flow added last")
}

// watchFlows reports each flow that is added, changed or deleted from now on.
func (l *lab) watchFlows(t *testing.T) <-chan string {
	t.Helper()
	command := exec.Command("ovs-ofctl", "monitor", "unix:"+l.open.Folder+"/"+bridgeName+".mgmt", "watch:")
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	// It creates a control socket, by default in Open vSwitch's own folder.
	command.Env = append(os.Environ(), "OVS_RUNDIR="+l.open.Folder)
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	command.Stderr = command.Stdout // ovs-ofctl prints the changes to stderr
	if err := testlab.Start(command); err != nil {
		t.Fatal(err)
	}
	events := make(chan string, 1000)
	go func() {
		defer close(events)
		lines := bufio.NewScanner(out)
		for lines.Scan() {
			if strings.Contains(lines.Text(), "event=") {
				events <- lines.Text()
			}
		}
	}()
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
	})
	bound := time.AfterFunc(30*time.Second, func() { _ = command.Process.Kill() })
	t.Cleanup(func() { bound.Stop() })
	// ovs-ofctl first reports the existing flows.
	there := strings.Count(l.open.Ofctl(t, bridgeName, "dump-flows"), "cookie=")
	for range there {
		if line, open := <-events; !open || !slices.Contains(strings.Fields(line), "event=ADDED") {
			t.Fatalf("ovs-ofctl monitor printed %q for %d flows", line, there)
		}
	}
	return events
}
