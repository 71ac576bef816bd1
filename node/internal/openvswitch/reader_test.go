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

// A bridge that changed under the daemon is one that it repairs, so nobody who only looks may change it: this is what
// `railwrightd flows` did once, beside a daemon that saw one flow too many.
func TestOneWhoOnlyReadsChangesNoFlow(t *testing.T) {
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
		testlab.Eventually(t, "the datapath can be read", func() bool {
			_, err = reader.Datapath(t.Context())
			return err == nil
		})
		if _, err := reader.Counters(t.Context(), bridgeName); err == nil {
			t.Error("one who only reads the datapath knows a bridge")
		}
		reader.Close()
	}

	// What comes after this flow of ours was made after all of the above.
	const ours = "cookie=0x7"
	rail.open.Ofctl(t, bridgeName, "add-flow", "table=62,"+ours+",actions=drop")
	for line := range changes {
		if slices.Contains(strings.Fields(line), ours) {
			return
		}
		t.Errorf("a look at the datapath changed the bridge: %s", line)
	}
	t.Error("the bridge did not tell of the flow that was added last")
}

// watchFlows tells of each flow that is added, changed or deleted from now on.
func (l *lab) watchFlows(t *testing.T) <-chan string {
	t.Helper()
	command := exec.Command("ovs-ofctl", "monitor", "unix:"+l.open.Folder+"/"+bridgeName+".mgmt", "watch:")
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	// It makes a control socket of its own, in the folder that Open vSwitch was built with.
	command.Env = append(os.Environ(), "OVS_RUNDIR="+l.open.Folder)
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	command.Stderr = command.Stdout // where the changes go
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
	// First it tells of those that are there.
	there := strings.Count(l.open.Ofctl(t, bridgeName, "dump-flows"), "cookie=")
	for range there {
		if line, open := <-events; !open || !slices.Contains(strings.Fields(line), "event=ADDED") {
			t.Fatalf("ovs-ofctl monitor told %q of %d flows", line, there)
		}
	}
	return events
}
