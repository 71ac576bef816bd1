package railnode

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	nodev1 "railwright/node/api/v1"
	"railwright/node/internal/failpoint"
	"railwright/node/testlab"
)

// process is a daemon that is running or has exited.
type process struct {
	command *exec.Cmd
	ended   chan struct{}
}

// lastLines is the number of lines of a daemon's log that a failed test prints.
const lastLines = 40

// Start starts the daemon. If step is not empty, the daemon kills itself at that step.
func (n *Node) Start(t testing.TB, step failpoint.Name) {
	t.Helper()
	log, err := os.OpenFile(n.Path("daemon.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	command := n.Host.Command(Daemon(t), "--config", n.Config())
	command.Env = append(os.Environ(), "RAILWRIGHT_FAILPOINT="+string(step))
	command.Stdout, command.Stderr = log, log
	if err := testlab.Start(command); err != nil {
		t.Fatal(err)
	}
	started := &process{command, make(chan struct{})}
	n.process = started
	go func() {
		_ = command.Wait()
		close(started.ended)
	}()
}

// Ready waits until the daemon reports all rails healthy, without problems or notes.
func (n *Node) Ready(t testing.TB) {
	t.Helper()
	testlab.UntilRight(t, func() string {
		reply, err := n.Client.Status(Soon(t), &nodev1.StatusRequest{})
		if err == nil && n.isHealthy(reply) {
			return ""
		}
		return fmt.Sprintf("%s is not ready: %v, %v", n.Name(), reply, err)
	})
}

func (n *Node) isHealthy(reply *nodev1.StatusReply) bool {
	for _, rail := range reply.GetRails() {
		if !rail.GetSwitchReady() || !rail.GetUplinkUp() || !rail.GetSessionEstablished() || len(rail.GetProblems()) > 0 {
			return false
		}
	}
	return len(reply.GetRails()) == len(n.Rails) && len(reply.GetProblems())+len(reply.GetNotes()) == 0
}

// Soon returns a context that expires after testlab.Patience. It stays valid when the test's context ends, for requests
// during cleanup.
func Soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), testlab.Patience)
	context.AfterFunc(ctx, cancel)
	return ctx
}

// Restart starts the daemon and waits until it is ready. The previous process must have ended.
func (n *Node) Restart(t testing.TB) {
	t.Helper()
	n.Start(t, "")
	n.Ready(t)
}

// Kill kills the daemon with SIGKILL and waits until it has exited. It does nothing if the daemon was never started.
func (n *Node) Kill(t testing.TB) {
	t.Helper()
	if n.process != nil {
		n.Signal(syscall.SIGKILL)
		n.Died(t)
	}
}

// Signal sends a signal to the daemon.
func (n *Node) Signal(signal syscall.Signal) { _ = n.process.command.Process.Signal(signal) }

// Pid returns the daemon's process ID.
func (n *Node) Pid() int { return n.process.command.Process.Pid }

// Died waits until the daemon has exited and returns its exit state.
func (n *Node) Died(t testing.TB) *os.ProcessState {
	t.Helper()
	select {
	case <-n.process.ended:
		return n.process.command.ProcessState
	case <-time.After(testlab.Patience):
		t.Fatalf("daemon of %s must exit", n.Name())
		return nil
	}
}

// MustBeKilled waits until the daemon has exited. It fails the test unless SIGKILL ended it, as it does at a failpoint.
func (n *Node) MustBeKilled(t testing.TB, step failpoint.Name) {
	t.Helper()
	status, ok := n.Died(t).Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() || status.Signal() != syscall.SIGKILL {
		t.Fatalf("%s: daemon must die of SIGKILL, but it exited by itself", step)
	}
}

// Resident returns the daemon's resident memory in bytes.
func (n *Node) Resident(t testing.TB) int64 { return n.memory(t, "VmRSS:") }

// Peak returns the most resident memory that the daemon ever had, in bytes.
func (n *Node) Peak(t testing.TB) int64 { return n.memory(t, "VmHWM:") }

func (n *Node) memory(t testing.TB, field string) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), field)
	var kib int64
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

// Log returns the daemon's log up to now.
func (n *Node) Log(t testing.TB) string {
	t.Helper()
	log, err := os.ReadFile(n.Path("daemon.log"))
	if err != nil {
		t.Fatal(err)
	}
	return string(log)
}

// printLog prints the end of the daemon's log if the test failed. If RAILWRIGHT_KEEP_LOGS names a folder, it moves the
// log there.
func (n *Node) printLog(t testing.TB) {
	log := n.Path("daemon.log")
	if content, err := os.ReadFile(log); err == nil && t.Failed() {
		lines := strings.Split(string(content), "\n")
		t.Logf("the last lines of %s:\n%s", n.Name(), strings.Join(lines[max(0, len(lines)-lastLines):], "\n"))
	}
	if folder := os.Getenv("RAILWRIGHT_KEEP_LOGS"); folder != "" {
		_ = os.Rename(log, filepath.Join(folder, n.Name()+".log"))
	}
}
