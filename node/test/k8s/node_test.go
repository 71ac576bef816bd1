//go:build k8s

package k8s

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"railwright/node/testlab"
)

// node is one machine of the cluster: mount, process and network namespaces of its own.
type node struct {
	cluster   *cluster
	Name      string
	Number    int
	Namespace *testlab.Namespace
	// Folder of all that it writes; Folder/log has a file for each process.
	Folder string
	Switch *testlab.OpenVSwitch
	FRR    *testlab.FRR
	// first process, whose end is the node's.
	first     *exec.Cmd
	processes map[string]*process
}

// process of a node that can be killed and started anew.
type process struct {
	argv    []string
	command *exec.Cmd
	ended   chan struct{}
}

// start the node's first process; binds are folders outside by where the node sees them.
func (n *node) start(t *testing.T, binds map[string]string) {
	t.Helper()
	check(t, os.MkdirAll(filepath.Join(n.Folder, "log"), 0o755))
	ready := filepath.Join(n.Folder, "mounted")
	description, err := json.Marshal(nodeMounts{
		Folder: n.Folder, Kept: []string{n.cluster.folder, n.cluster.tools, n.cluster.plugins}, Binds: binds,
		Ready: ready,
	})
	check(t, err)
	program, err := os.Executable()
	check(t, err)
	// Not `ip netns exec`, which takes the cgroups away with the old /sys.
	n.first = exec.Command("nsenter", "--net="+n.Namespace.Path(), program, nodeInit, string(description))
	n.first.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNS | syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL,
	}
	n.logTo(t, n.first, "first")
	check(t, testlab.Start(n.first))
	t.Cleanup(func() {
		_ = n.first.Process.Kill()
		_ = n.first.Wait()
		n.removeCgroups(t)
	})
	n.makeCgroups(t)
	await(t, n.Name+"'s file system", 10*time.Second, func() string {
		if _, err := os.Stat(ready); err != nil {
			return err.Error()
		}
		return ""
	})
}

// Command that runs in the node, with the cluster's programs before the machine's.
func (n *node) Command(argv ...string) *exec.Cmd {
	enter := []string{"-t", strconv.Itoa(n.first.Process.Pid), "-m", "-n", "-p", "--", "env", "PATH=" + n.cluster.path()}
	command := exec.Command("nsenter", append(enter, argv...)...)
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return command
}

// Run a command in the node and give its output; a failure of it is the test's.
func (n *node) Run(t *testing.T, argv ...string) string {
	t.Helper()
	output, err := n.Command(argv...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %v\n%s", n.Name, argv, err, output)
	}
	return string(output)
}

// path of a file as it is outside of the node.
func (n *node) path(seen string) string {
	return fmt.Sprintf("/proc/%d/root%s", n.first.Process.Pid, seen)
}

// Launch a process that stays.
func (n *node) Launch(t *testing.T, name string, argv ...string) {
	t.Helper()
	process := &process{argv: argv, command: n.Command(argv...), ended: make(chan struct{})}
	n.logTo(t, process.command, name)
	check(t, testlab.Start(process.command))
	go func() {
		_ = process.command.Wait()
		close(process.ended)
	}()
	n.processes[name] = process
}

// Kill a process as a crash would; it returns when it is gone.
func (n *node) Kill(t *testing.T, name string) {
	t.Helper()
	process := n.processes[name]
	for _, pid := range children(process.command.Process.Pid) {
		check(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	select {
	case <-process.ended:
	case <-time.After(10 * time.Second):
		t.Fatalf("%s: %s is there 10 s after SIGKILL", n.Name, name)
	}
}

// Restart a process that was killed.
func (n *node) Restart(t *testing.T, name string) {
	t.Helper()
	n.Launch(t, name, n.processes[name].argv...)
}

// children of a process; nsenter has one: what it was asked to run.
func children(pid int) []int {
	listed, _ := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
	var pids []int
	for _, word := range strings.Fields(string(listed)) {
		if child, err := strconv.Atoi(word); err == nil {
			pids = append(pids, child)
		}
	}
	return pids
}

func (n *node) logTo(t *testing.T, command *exec.Cmd, name string) {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(n.Folder, "log", name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	check(t, err)
	t.Cleanup(func() { _ = log.Close() })
	command.Stdout, command.Stderr = log, log
}

// cgroup of the node below each hierarchy: kubelets of one machine would remove each other's pods from a common one.
func (n *node) cgroup() string { return "/" + n.Namespace.Name }

func (n *node) makeCgroups(t *testing.T) {
	t.Helper()
	for _, hierarchy := range hierarchies() {
		folder := hierarchy + n.cgroup()
		check(t, os.MkdirAll(folder, 0o755))
		for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
			// Version 1 gives a new group no CPU and no memory.
			if all, err := os.ReadFile(filepath.Join(hierarchy, name)); err == nil {
				check(t, os.WriteFile(filepath.Join(folder, name), all, 0o644))
			}
		}
	}
}

// removeCgroups once the processes in them are gone, which takes the kernel a moment.
func (n *node) removeCgroups(t *testing.T) {
	t.Helper()
	for _, hierarchy := range hierarchies() {
		var left string
		for until := time.Now().Add(10 * time.Second); time.Now().Before(until); time.Sleep(20 * time.Millisecond) {
			left = removeEmpty(hierarchy + n.cgroup())
			if left == "" {
				break
			}
		}
		if left != "" {
			t.Errorf("a cgroup is left: %s", left)
		}
	}
}

func removeEmpty(folder string) (left string) {
	entries, _ := os.ReadDir(folder)
	for _, entry := range entries {
		if entry.IsDir() {
			if inner := removeEmpty(filepath.Join(folder, entry.Name())); inner != "" {
				left = inner
			}
		}
	}
	if err := syscall.Rmdir(folder); err != nil && err != syscall.ENOENT {
		return folder
	}
	return left
}

func hierarchies() []string {
	const root = "/sys/fs/cgroup"
	if _, err := os.Stat(root + "/cgroup.procs"); err == nil {
		return []string{root}
	}
	found, _ := filepath.Glob(root + "/*/cgroup.procs")
	for i := range found {
		found[i] = filepath.Dir(found[i])
	}
	return found
}

// management is the node's address in the network of the control plane, and the control plane's on the same cable.
func (n *node) management() (own, control netip.Addr) {
	return netip.AddrFrom4([4]byte{10, 222, byte(n.Number), 2}), netip.AddrFrom4([4]byte{10, 222, byte(n.Number), 1})
}

// pods of the node in the cluster's default network.
func (n *node) pods() netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(n.Number), 0}), 24)
}

// await until look finds nothing missing any more; it says what is.
func await(t *testing.T, name string, most time.Duration, look func() (missing string)) time.Duration {
	t.Helper()
	return awaitEvery(t, 20*time.Millisecond, name, most, look)
}

// awaitEvery is for looks that cost more than a little: kubectl alone takes a core for a tenth of a second.
func awaitEvery(t *testing.T, pause time.Duration, name string, most time.Duration, look func() (missing string)) time.Duration {
	t.Helper()
	start := time.Now()
	for {
		missing := look()
		if missing == "" {
			return time.Since(start)
		}
		if time.Since(start) > most {
			t.Fatalf("%s: not after %v: %s", name, most, missing)
		}
		time.Sleep(pause)
	}
}
