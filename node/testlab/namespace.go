// Package testlab creates network namespaces, cables, switches and routers for tests. Everything that it starts ends
// with the test, even if the test is killed.
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

// Namespace is a network namespace that is deleted at the end of the test.
type Namespace struct{ Name string }

// NewNamespace creates a namespace. hint is part of its name, up to 8 of a-z, 0-9 and -. Without root it skips the
// test, or fails it if RAILWRIGHT_TEST_NEEDS_ROOT is set. It always skips if RAILWRIGHT_TEST_PURE is set (make quick).
func NewNamespace(t testing.TB, hint string) *Namespace {
	t.Helper()
	if os.Getenv("RAILWRIGHT_TEST_PURE") != "" {
		t.Skip("test needs a network namespace, and RAILWRIGHT_TEST_PURE is set")
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

// made counts the namespaces of this process and makes their names unique. Random names collide if a test creates
// hundreds.
var made atomic.Int64

// sweep deletes the namespaces of killed tests once. Their processes ended with the test, but their names remain.
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

// Path returns the path of the namespace's file.
func (n *Namespace) Path() string { return "/run/netns/" + n.Name }

// Command returns a command that runs in the namespace and is killed when this process ends.
func (n *Namespace) Command(argv ...string) *exec.Cmd {
	command := exec.Command("ip", append([]string{"netns", "exec", n.Name}, argv...)...)
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return command
}

// Run runs a command in the namespace and returns its output. It fails the test if the command fails.
func (n *Namespace) Run(t testing.TB, argv ...string) string {
	t.Helper()
	return output(t, n.Command(argv...))
}

// Try runs a command in the namespace that may fail, and returns its output and its error.
func (n *Namespace) Try(argv ...string) (string, error) {
	output, err := n.Command(argv...).CombinedOutput()
	return string(output), err
}

// IP runs `ip -n` on the namespace and returns its output. It fails the test if the command fails.
func (n *Namespace) IP(t testing.TB, arguments ...string) string {
	t.Helper()
	return output(t, exec.Command("ip", append([]string{"-n", n.Name}, arguments...)...))
}

// TakeAddressesAtOnce disables duplicate address detection, which delays each IPv6 address by a second, for interfaces
// that are created later.
func (n *Namespace) TakeAddressesAtOnce(t testing.TB) {
	t.Helper()
	n.Run(t, "sysctl", "-qw", "net.ipv6.conf.all.accept_dad=0", "net.ipv6.conf.default.accept_dad=0")
}

// Cable connects two namespaces with a veth pair and sets both ends up. It disables checksum offload, because the
// userspace datapath does not compute checksums that a veth left to hardware.
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

// Run runs a command and returns its output. It fails the test if the command fails.
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
		// A thread of this process can be in the namespace temporarily (Within); this process must not kill itself.
		if pid, err := strconv.Atoi(word); err == nil && pid != os.Getpid() {
			pids = append(pids, pid)
		}
	}
	return pids
}
