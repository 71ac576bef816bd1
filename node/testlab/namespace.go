// Package testlab makes real network namespaces, cables, switches and routers for tests. Everything it starts ends with
// the test, also when the test is killed.
package testlab

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
)

// Namespace is a network namespace of its own, gone at the end of the test.
type Namespace struct{ Name string }

// NewNamespace makes one; hint is a part of its name, up to 8 of a-z, 0-9 and -. Skips the test for all but root,
// unless RAILWRIGHT_TEST_NEEDS_ROOT is set: then that is a failure. RAILWRIGHT_TEST_PURE (make quick) skips it for all.
func NewNamespace(t testing.TB, hint string) *Namespace {
	t.Helper()
	if os.Getenv("RAILWRIGHT_TEST_PURE") != "" {
		t.Skip("only pure tests are asked for: this one makes a namespace")
	}
	if os.Geteuid() != 0 {
		if os.Getenv("RAILWRIGHT_TEST_NEEDS_ROOT") != "" {
			t.Fatal("network namespaces need root")
		}
		t.Skip("network namespaces need root")
	}
	sweep.Do(deleteAbandoned)
	namespace := &Namespace{Name: fmt.Sprintf("rwt-%s-%d-%04x", hint, os.Getpid(), made.Add(1)&0xffff)}
	Run(t, "ip", "netns", "add", namespace.Name)
	t.Cleanup(func() {
		for _, pid := range namespace.processes() {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		_ = exec.Command("ip", "netns", "delete", namespace.Name).Run()
	})
	Run(t, "ip", "-n", namespace.Name, "link", "set", "lo", "up")
	return namespace
}

// made by this process so far: names that are drawn by lot meet where a test makes hundreds.
var made atomic.Int64

// sweep the namespaces of tests that were killed: their processes died with them, their names did not.
var sweep sync.Once

var ownedName = regexp.MustCompile(`^rwt-[a-z0-9-]+-([0-9]+)-[0-9a-f]{4}$`)

func deleteAbandoned() {
	entries, _ := os.ReadDir("/run/netns")
	for _, entry := range entries {
		owner := ownedName.FindStringSubmatch(entry.Name())
		if owner == nil {
			continue
		}
		if _, err := os.Stat("/proc/" + owner[1]); os.IsNotExist(err) {
			_ = exec.Command("ip", "netns", "delete", entry.Name()).Run()
		}
	}
}

// Path of the namespace's file.
func (n *Namespace) Path() string { return "/run/netns/" + n.Name }

// Command that runs in the namespace; it dies with this process.
func (n *Namespace) Command(argv ...string) *exec.Cmd {
	command := exec.Command("ip", append([]string{"netns", "exec", n.Name}, argv...)...)
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return command
}

// Run a command in the namespace and give its output; a failure of it is the test's.
func (n *Namespace) Run(t testing.TB, argv ...string) string {
	t.Helper()
	return output(t, n.Command(argv...))
}

// Try runs a command in the namespace, for those that may fail.
func (n *Namespace) Try(argv ...string) (string, error) {
	output, err := n.Command(argv...).CombinedOutput()
	return string(output), err
}

// IP runs `ip` on the namespace.
func (n *Namespace) IP(t testing.TB, arguments ...string) string {
	t.Helper()
	return output(t, exec.Command("ip", append([]string{"-n", n.Name}, arguments...)...))
}

// TakeAddressesAtOnce leaves out duplicate address detection, which holds each IPv6 address back for a second, on
// interfaces made from now on.
func (n *Namespace) TakeAddressesAtOnce(t testing.TB) {
	t.Helper()
	n.Run(t, "sysctl", "-qw", "net.ipv6.conf.all.accept_dad=0", "net.ipv6.conf.default.accept_dad=0")
}

// Cable joins two namespaces with a veth pair whose ends are up and leave checksums to software: the userspace datapath
// does not fill in what a veth left for hardware.
func Cable(t testing.TB, first *Namespace, name string, other *Namespace, otherName string) {
	t.Helper()
	Run(t, "ip", "link", "add", name, "netns", first.Name, "type", "veth", "peer", "name", otherName, "netns", other.Name)
	for _, end := range []struct {
		namespace *Namespace
		name      string
	}{{first, name}, {other, otherName}} {
		end.namespace.IP(t, "link", "set", end.name, "up")
		end.namespace.Run(t, "ethtool", "-K", end.name, "tx", "off")
	}
}

// Run a command and give its output; a failure of it is the test's.
func Run(t testing.TB, argv ...string) string {
	t.Helper()
	return output(t, exec.Command(argv[0], argv[1:]...))
}

func output(t testing.TB, command *exec.Cmd) string {
	t.Helper()
	listing, err := command.CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", command.Args, err, listing)
	}
	return string(listing)
}

func (n *Namespace) processes() []int {
	output, _ := exec.Command("ip", "netns", "pids", n.Name).Output()
	var pids []int
	for _, word := range strings.Fields(string(output)) {
		// A thread of this process may be there for a moment (Within): never ourselves.
		if pid, err := strconv.Atoi(word); err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}
