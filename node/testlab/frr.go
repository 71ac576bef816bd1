package testlab

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// FRRVersion is an FRR release that the tests run: Debian's package, or a newer release unpacked in a folder.
type FRRVersion string

// The releases are 8.4 from Debian 12 and 10.3 from Debian 13.
const (
	FRR8  FRRVersion = "8"
	FRR10 FRRVersion = "10"
)

// vtyGroup must be the group that the daemons were built with, or they do not start.
const vtyGroup = "frrvty"

// FRR is a set of FRR daemons in a namespace. vtysh loads a single frr.conf into all of them, as FRR's service does.
type FRR struct {
	Namespace *Namespace
	Folder    string
	Version   FRRVersion
	daemons   []string
	processes map[string]*exec.Cmd
}

// StartFRR starts zebra, bgpd, the daemons in more, such as bfdd, and for FRR 10 mgmtd, and loads the configuration. If
// this release is not installed, it skips the test, or fails it if RAILWRIGHT_TEST_NEEDS_FRR is set.
func StartFRR(t testing.TB, namespace *Namespace, version FRRVersion, configuration string, more ...string) *FRR {
	t.Helper()
	if _, err := frrProgram(version, "bgpd"); err != nil {
		if os.Getenv("RAILWRIGHT_TEST_NEEDS_FRR") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	// t.TempDir can return a path that is too long for a unix socket.
	folder, err := os.MkdirTemp("", "rwt-frr-")
	if err != nil {
		t.Fatal(err)
	}
	frr := &FRR{Namespace: namespace, Folder: folder, Version: version, processes: map[string]*exec.Cmd{}}
	frr.daemons = append([]string{"zebra", "bgpd"}, more...)
	if version == FRR10 {
		// The management daemon must start first. No option moves its sockets out of this folder.
		frr.daemons = append([]string{"mgmtd"}, frr.daemons...)
		run := filepath.Join("/run/frr", namespace.Name)
		if err := os.MkdirAll(run, 0o755); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(run) })
	}
	t.Cleanup(func() {
		for daemon := range frr.processes {
			frr.end(daemon)
		}
		_ = os.RemoveAll(folder)
	})
	for name, text := range map[string]string{"frr.conf": configuration, "vtysh.conf": ""} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for _, daemon := range frr.daemons {
		frr.launch(t, daemon)
	}
	frr.load(t)
	return frr
}

// Socket returns the path of a daemon's vtysh socket.
func (f *FRR) Socket(daemon string) string { return filepath.Join(f.Folder, daemon+".vty") }

// Show runs commands in vtysh and returns their output.
func (f *FRR) Show(t testing.TB, commands ...string) string {
	t.Helper()
	var arguments []string
	for _, command := range commands {
		arguments = append(arguments, "-c", command)
	}
	return Run(t, f.vtysh(t, arguments...)...)
}

// Vtysh returns the command line that runs vtysh for these daemons, without a command to execute.
func (f *FRR) Vtysh(t testing.TB) []string { return f.vtysh(t) }

// Pids returns the process IDs of the running daemons by name.
func (f *FRR) Pids() map[string]int {
	pids := map[string]int{}
	for daemon, command := range f.processes {
		pids[daemon] = command.Process.Pid
	}
	return pids
}

// Restart kills daemons in this order, as a crash of all of them would, and starts them in the reverse order.
func (f *FRR) Restart(t testing.TB, daemons ...string) {
	t.Helper()
	for _, daemon := range daemons {
		f.Kill(t, daemon)
	}
	for _, daemon := range slices.Backward(daemons) {
		f.Start(t, daemon)
	}
}

// Kill kills a daemon with SIGKILL and waits until it has exited.
func (f *FRR) Kill(t testing.TB, daemon string) {
	t.Helper()
	if f.processes[daemon] == nil {
		t.Fatalf("%s does not run", daemon)
	}
	f.end(daemon)
}

// Start starts a daemon again and loads its configuration, as FRR's watchdog does.
func (f *FRR) Start(t testing.TB, daemon string) {
	t.Helper()
	f.launch(t, daemon)
	f.load(t, "-d", daemon)
}

// Add adds a line to the configuration, after the first occurrence of another: to the running daemons, in which it must
// be a line of `router bgp`, and to the file that restarted daemons read.
func (f *FRR) Add(t testing.TB, line, after string) {
	t.Helper()
	path := filepath.Join(f.Folder, "frr.conf")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	before, rest, found := strings.Cut(string(text), "\n"+after+"\n")
	start := strings.LastIndex(before, "\nrouter bgp ") + 1
	if !found || start == 0 {
		t.Fatalf("%s must have the line %q of `router bgp`:\n%s", path, after, text)
	}
	router, _, _ := strings.Cut(before[start:], "\n")
	if complaint := f.Show(t, "configure terminal", router, line); strings.TrimSpace(complaint) != "" {
		t.Fatalf("FRR %s rejected %q: %s", f.Version, line, complaint)
	}
	// A restarted daemon must find the group before the line.
	text = []byte(before + "\n" + after + "\n" + line + "\n" + rest)
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
}

// Freeze stops a daemon with SIGSTOP: its sockets stay open, but nothing answers.
func (f *FRR) Freeze(t testing.TB, daemon string) { f.signal(t, daemon, syscall.SIGSTOP) }

// Thaw resumes a frozen daemon.
func (f *FRR) Thaw(t testing.TB, daemon string) { f.signal(t, daemon, syscall.SIGCONT) }

func (f *FRR) signal(t testing.TB, daemon string, signal syscall.Signal) {
	t.Helper()
	if err := f.processes[daemon].Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}

func (f *FRR) end(daemon string) {
	command := f.processes[daemon]
	delete(f.processes, daemon)
	_ = command.Process.Kill()
	_ = command.Wait()
}

func (f *FRR) launch(t testing.TB, daemon string) {
	t.Helper()
	program, err := frrProgram(f.Version, daemon)
	if err != nil {
		t.Fatal(err)
	}
	path := func(name string) string { return filepath.Join(f.Folder, name) }
	// A daemon that changes its user loses the signal that ends it with this process, so it must stay root.
	arguments := append(program, "-u", "root", "-g", vtyGroup, "--vty_socket", f.Folder, "-z", path("zserv.api"),
		"-i", path(daemon+".pid"), "-P", "0", "--log", "file:"+path(daemon+".log"))
	if f.Version == FRR10 {
		arguments = append(arguments, "-N", f.Namespace.Name)
	}
	command := f.Namespace.Command(arguments...)
	stderr, err := os.Create(path(daemon + ".err"))
	if err != nil {
		t.Fatal(err)
	}
	defer stderr.Close()
	command.Stdout, command.Stderr = stderr, stderr
	if err := Start(command); err != nil {
		t.Fatal(err)
	}
	f.processes[daemon] = command
	for until := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if connection, err := net.Dial("unix", f.Socket(daemon)); err == nil {
			_ = connection.Close()
			return
		}
		if time.Now().After(until) {
			log, _ := os.ReadFile(path(daemon + ".log"))
			complaint, _ := os.ReadFile(path(daemon + ".err"))
			t.Fatalf("%s must answer within 20 s of its start:\n%s%s", daemon, complaint, log)
		}
	}
}

func (f *FRR) load(t testing.TB, arguments ...string) {
	t.Helper()
	command := f.vtysh(t, append([]string{"--config_dir", f.Folder, "-b"}, arguments...)...)
	output := Run(t, command...)
	// A daemon that is still loading its initial configuration holds mgmtd's lock briefly.
	for until := time.Now().Add(10 * time.Second); strings.Contains(output, "locked by another session") && time.Now().Before(until); {
		time.Sleep(50 * time.Millisecond)
		output = Run(t, command...)
	}
	for line := range strings.Lines(output) {
		if strings.HasPrefix(line, "%") || strings.Contains(line, "Unknown command") || strings.HasPrefix(line, "line ") {
			t.Fatalf("FRR %s rejected its configuration:\n%s", f.Version, output)
		}
	}
}

func (f *FRR) vtysh(t testing.TB, arguments ...string) []string {
	t.Helper()
	program, err := frrProgram(f.Version, "vtysh")
	if err != nil {
		t.Fatal(err)
	}
	return append(append(program, "--vty_socket", f.Folder), arguments...)
}

func frrProgram(version FRRVersion, daemon string) ([]string, error) {
	folder := "lib/frr"
	if daemon == "vtysh" {
		folder = "bin"
	}
	if version == FRR8 {
		program := filepath.Join("/usr", folder, daemon)
		if _, err := os.Stat(program); err != nil {
			return nil, fmt.Errorf("FRR is not installed: %w", err)
		}
		return []string{program}, nil
	}
	root := frr10Root()
	program := filepath.Join(root, "usr", folder, daemon)
	if _, err := os.Stat(program); err != nil {
		return nil, fmt.Errorf("FRR 10 is not in %s (scripts/unpack-frr10 puts it there): %w", root, err)
	}
	loader := filepath.Join(root, "usr/lib64/ld-linux-x86-64.so.2")
	if _, err := os.Stat(loader); err != nil {
		loader = filepath.Join(root, "lib64/ld-linux-x86-64.so.2")
	}
	var libraries []string
	for _, path := range []string{"usr/lib/x86_64-linux-gnu/frr", "usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"} {
		libraries = append(libraries, filepath.Join(root, path))
	}
	return []string{loader, "--library-path", strings.Join(libraries, ":"), program}, nil
}

// frr10Root returns the folder in RAILWRIGHT_FRR10, or the one that scripts/unpack-frr10 fills in this checkout.
func frr10Root() string {
	if named := os.Getenv("RAILWRIGHT_FRR10"); named != "" {
		return named
	}
	_, here, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(here), "../../.cache/frr10")
}
