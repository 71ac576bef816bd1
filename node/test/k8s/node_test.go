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

// node is a machine of the cluster, made of its own mount, process and network namespaces.
type node struct {
	cluster   *cluster
	Name      string
	Number    int
	Namespace *testlab.Namespace
	// Folder holds all files that the node writes. Folder/log has a log file for each process.
	Folder string
	Switch *testlab.OpenVSwitch
	FRR    *testlab.FRR
	// first is the node's first process. All other processes end with it.
	first     *exec.Cmd
	processes map[string]*process
}

// process is a process of a node that can be killed and restarted.
type process struct {
	argv    []string
	command *exec.Cmd
	ended   chan struct{}
}

// start starts the node's first process. binds maps paths inside the node to folders of the machine.
func (n *node) start(t *testing.T, binds map[string]string) {
	t.Helper()
	check(t, os.MkdirAll(filepath.Join(n.Folder, "log"), 0o755))
	ready := filepath.Join(n.Folder, "mounted")
	description, err := json.Marshal(nodeMounts{
		Folder: n.Folder, Kept: []string{n.cluster.folder, n.cluster.tools, n.cluster.plugins, sitePackages(t)}, Binds: binds,
		Ready: ready,
	})
	check(t, err)
	program, err := os.Executable()
	check(t, err)
	// `ip netns exec` would hide the cgroups, because it replaces /sys.
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

// Command returns a command that runs in the node. The cluster's programs come before the machine's in its PATH.
func (n *node) Command(argv ...string) *exec.Cmd {
	enter := []string{"-t", strconv.Itoa(n.first.Process.Pid), "-m", "-n", "-p", "--", "env", "PATH=" + n.cluster.path()}
	command := exec.Command("nsenter", append(enter, argv...)...)
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	return command
}

// Run runs a command in the node and returns its output. It fails the test if the command fails.
func (n *node) Run(t *testing.T, argv ...string) string {
	t.Helper()
	output, err := n.Command(argv...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v: %v\n%s", n.Name, argv, err, output)
	}
	return string(output)
}

// path returns the machine's path of a file of the node.
func (n *node) path(seen string) string {
	return fmt.Sprintf("/proc/%d/root%s", n.first.Process.Pid, seen)
}

// Launch starts a long-running process.
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

// Kill kills a process with SIGKILL and returns once it has exited.
func (n *node) Kill(t *testing.T, name string) {
	t.Helper()
	process := n.processes[name]
	for _, pid := range children(process.command.Process.Pid) {
		check(t, syscall.Kill(pid, syscall.SIGKILL))
	}
	select {
	case <-process.ended:
	case <-time.After(10 * time.Second):
		t.Fatalf("%s: %s still runs 10 s after SIGKILL", n.Name, name)
	}
}

// Restart starts a killed process again.
func (n *node) Restart(t *testing.T, name string) {
	t.Helper()
	n.Launch(t, name, n.processes[name].argv...)
}

// children returns the child processes of a process. nsenter has one, the command that it runs.
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

// cgroup returns the path of the node's cgroup in each hierarchy. In a shared cgroup the kubelets of one machine would
// remove each other's pods.
func (n *node) cgroup() string { return "/" + n.Namespace.Name }

func (n *node) makeCgroups(t *testing.T) {
	t.Helper()
	for _, hierarchy := range hierarchies() {
		folder := hierarchy + n.cgroup()
		check(t, os.MkdirAll(folder, 0o755))
		for _, name := range []string{"cpuset.cpus", "cpuset.mems"} {
			// In cgroup v1 a new group has no CPUs and memory nodes.
			if all, err := os.ReadFile(filepath.Join(hierarchy, name)); err == nil {
				check(t, os.WriteFile(filepath.Join(folder, name), all, 0o644))
			}
		}
	}
}

// removeCgroups removes the node's cgroups once their processes are gone, which takes the kernel a moment.
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
			t.Errorf("cgroup was not removed: %s", left)
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

// management returns the node's address in the management network and the control plane's on the same cable.
func (n *node) management() (own, control netip.Addr) {
	return netip.AddrFrom4([4]byte{10, 222, byte(n.Number), 2}), netip.AddrFrom4([4]byte{10, 222, byte(n.Number), 1})
}

// pods returns the prefix of the node's pods in the cluster's default network.
func (n *node) pods() netip.Prefix {
	return netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 244, byte(n.Number), 0}), 24)
}

// await waits until look returns "" and returns the time that it waited. It fails the test after limit.
func await(t *testing.T, name string, limit time.Duration, look func() (missing string)) time.Duration {
	t.Helper()
	return awaitEvery(t, 20*time.Millisecond, name, limit, look)
}

// awaitEvery is await with a pause between looks, for expensive ones: kubectl uses a core for a tenth of a second.
func awaitEvery(t *testing.T, pause time.Duration, name string, limit time.Duration, look func() (missing string)) time.Duration {
	t.Helper()
	start := time.Now()
	for {
		missing := look()
		if missing == "" {
			return time.Since(start)
		}
		if time.Since(start) > limit {
			t.Fatalf("%s: not after %v: %s", name, limit, missing)
		}
		time.Sleep(pause)
	}
}
