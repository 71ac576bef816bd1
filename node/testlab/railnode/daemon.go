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

// process of a daemon that runs, or has.
type process struct {
	command *exec.Cmd
	ended   chan struct{}
}

// lastLines of a daemon's log that a test which failed shows.
const lastLines = 40

// Start the daemon; it dies at the step named, where one is.
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

// Ready once all rails are well, by the daemon's own word.
func (n *Node) Ready(t testing.TB) {
	t.Helper()
	testlab.UntilRight(t, func() string {
		reply, err := n.Client.Status(Soon(t), &nodev1.StatusRequest{})
		if err == nil && n.allWell(reply) {
			return ""
		}
		return fmt.Sprintf("%s is not ready: %v, %v", n.Name(), reply, err)
	})
}

func (n *Node) allWell(reply *nodev1.StatusReply) bool {
	for _, rail := range reply.GetRails() {
		if !rail.GetSwitchReady() || !rail.GetUplinkUp() || !rail.GetSessionEstablished() || len(rail.GetProblems()) > 0 {
			return false
		}
	}
	return len(reply.GetRails()) == len(n.Rails) && len(reply.GetProblems())+len(reply.GetNotes()) == 0
}

// Soon bounds a request, also one that is made after the test's own context has ended.
func Soon(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), testlab.Patience)
	context.AfterFunc(ctx, cancel)
	return ctx
}

// Restart starts the daemon, and waits until it is ready.
func (n *Node) Restart(t testing.TB) {
	t.Helper()
	n.Start(t, "")
	n.Ready(t)
}

// Kill the daemon as the kernel would.
func (n *Node) Kill(t testing.TB) {
	t.Helper()
	if n.process != nil {
		n.Signal(syscall.SIGKILL)
		n.Died(t)
	}
}

// Signal the daemon.
func (n *Node) Signal(signal syscall.Signal) { _ = n.process.command.Process.Signal(signal) }

// Pid of the daemon.
func (n *Node) Pid() int { return n.process.command.Process.Pid }

// Died waits for the daemon's end, and says how it ended.
func (n *Node) Died(t testing.TB) *os.ProcessState {
	t.Helper()
	select {
	case <-n.process.ended:
		return n.process.command.ProcessState
	case <-time.After(testlab.Patience):
		t.Fatalf("the daemon of %s does not end", n.Name())
		return nil
	}
}

// MustBeKilled waits for the daemon's end, which has to be that of a step at which it dies.
func (n *Node) MustBeKilled(t testing.TB, step failpoint.Name) {
	t.Helper()
	status, ok := n.Died(t).Sys().(syscall.WaitStatus)
	if !ok || !status.Signaled() || status.Signal() != syscall.SIGKILL {
		t.Fatalf("%s: the daemon ended by itself", step)
	}
}

// Resident memory of the daemon in bytes.
func (n *Node) Resident(t testing.TB) int64 {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", n.Pid()))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), "VmRSS:")
	var kib int64
	if _, err := fmt.Sscan(rest, &kib); err != nil {
		t.Fatal(err)
	}
	return kib << 10
}

// Log of the daemon so far.
func (n *Node) Log(t testing.TB) string {
	t.Helper()
	log, err := os.ReadFile(n.Path("daemon.log"))
	if err != nil {
		t.Fatal(err)
	}
	return string(log)
}

// tellLog of a daemon whose test failed. RAILWRIGHT_KEEP_LOGS is a folder that all logs are kept in.
func (n *Node) tellLog(t testing.TB) {
	log := n.Path("daemon.log")
	if content, err := os.ReadFile(log); err == nil && t.Failed() {
		lines := strings.Split(string(content), "\n")
		t.Logf("the last lines of %s:\n%s", n.Name(), strings.Join(lines[max(0, len(lines)-lastLines):], "\n"))
	}
	if folder := os.Getenv("RAILWRIGHT_KEEP_LOGS"); folder != "" {
		_ = os.Rename(log, filepath.Join(folder, n.Name()+".log"))
	}
}
