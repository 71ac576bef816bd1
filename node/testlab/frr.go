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

// FRRVersion is a release of FRR that the tests run: Debian's own, or a newer one in a folder beside it.
type FRRVersion string

// The releases: 8.4 of Debian 12 and 10.3 of Debian 13.
const (
	FRR8  FRRVersion = "8"
	FRR10 FRRVersion = "10"
)

// vtyGroup must be the daemons' own, or they do not start.
const vtyGroup = "frrvty"

// FRR is a set of FRR's daemons in a namespace, configured by one frr.conf through vtysh as its service does.
type FRR struct {
	Namespace *Namespace
	Folder    string
	Version   FRRVersion
	daemons   []string
	processes map[string]*exec.Cmd
}

// StartFRR starts zebra and bgpd (for FRR 10 mgmtd too; more where named, as bfdd) and loads the configuration. Skips the
// test where this release is not on the machine, unless RAILWRIGHT_TEST_NEEDS_FRR is set: then that is a failure.
func StartFRR(t testing.TB, namespace *Namespace, version FRRVersion, configuration string, more ...string) *FRR {
	t.Helper()
	if _, err := frrProgram(version, "bgpd"); err != nil {
		if os.Getenv("RAILWRIGHT_TEST_NEEDS_FRR") != "" {
			t.Fatal(err)
		}
		t.Skip(err)
	}
	// Not t.TempDir: its path can be longer than that of a unix socket may be.
	folder, err := os.MkdirTemp("", "rwt-frr-")
	if err != nil {
		t.Fatal(err)
	}
	frr := &FRR{Namespace: namespace, Folder: folder, Version: version, processes: map[string]*exec.Cmd{}}
	frr.daemons = append([]string{"zebra", "bgpd"}, more...)
	if version == FRR10 {
		// The management daemon comes first, and has its sockets here: no option moves them elsewhere.
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

// Socket that vtysh talks to a daemon by.
func (frr *FRR) Socket(daemon string) string { return filepath.Join(frr.Folder, daemon+".vty") }

// Show runs a command in vtysh and gives what it prints.
func (frr *FRR) Show(t testing.TB, commands ...string) string {
	t.Helper()
	var arguments []string
	for _, command := range commands {
		arguments = append(arguments, "-c", command)
	}
	return Run(t, frr.vtysh(t, arguments...)...)
}

// Vtysh is the command line of vtysh for these daemons, without a command.
func (frr *FRR) Vtysh(t testing.TB) []string { return frr.vtysh(t) }

// Pids of the daemons that run, by their names.
func (frr *FRR) Pids() map[string]int {
	pids := map[string]int{}
	for daemon, command := range frr.processes {
		pids[daemon] = command.Process.Pid
	}
	return pids
}

// Restart daemons as after a crash of all of them: ended in this order, started in the reverse one.
func (frr *FRR) Restart(t testing.TB, daemons ...string) {
	t.Helper()
	for _, daemon := range daemons {
		frr.Kill(t, daemon)
	}
	for _, daemon := range slices.Backward(daemons) {
		frr.Start(t, daemon)
	}
}

// Kill ends a daemon as a crash would, with no chance to say goodbye.
func (frr *FRR) Kill(t testing.TB, daemon string) {
	t.Helper()
	if frr.processes[daemon] == nil {
		t.Fatalf("%s does not run", daemon)
	}
	frr.end(daemon)
}

// Start a daemon again and give it its configuration, as FRR's own watchdog does.
func (frr *FRR) Start(t testing.TB, daemon string) {
	t.Helper()
	frr.launch(t, daemon)
	frr.load(t, "-d", daemon)
}

// Freeze a daemon where it is: its sockets stay open and nobody answers.
func (frr *FRR) Freeze(t testing.TB, daemon string) { frr.signal(t, daemon, syscall.SIGSTOP) }

// Thaw is Freeze's reverse.
func (frr *FRR) Thaw(t testing.TB, daemon string) { frr.signal(t, daemon, syscall.SIGCONT) }

func (frr *FRR) signal(t testing.TB, daemon string, signal syscall.Signal) {
	t.Helper()
	if err := frr.processes[daemon].Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}

func (frr *FRR) end(daemon string) {
	command := frr.processes[daemon]
	delete(frr.processes, daemon)
	_ = command.Process.Kill()
	_ = command.Wait()
}

func (frr *FRR) launch(t testing.TB, daemon string) {
	t.Helper()
	program, err := frrProgram(frr.Version, daemon)
	if err != nil {
		t.Fatal(err)
	}
	path := func(name string) string { return filepath.Join(frr.Folder, name) }
	// As root: a daemon that takes another user is no longer told that this process died.
	words := append(program, "-u", "root", "-g", vtyGroup, "--vty_socket", frr.Folder, "-z", path("zserv.api"),
		"-i", path(daemon+".pid"), "-P", "0", "--log", "file:"+path(daemon+".log"))
	if frr.Version == FRR10 {
		words = append(words, "-N", frr.Namespace.Name)
	}
	command := frr.Namespace.Command(words...)
	told, err := os.Create(path(daemon + ".err"))
	if err != nil {
		t.Fatal(err)
	}
	defer told.Close()
	command.Stdout, command.Stderr = told, told
	if err := Start(command); err != nil {
		t.Fatal(err)
	}
	frr.processes[daemon] = command
	for until := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if connection, err := net.Dial("unix", frr.Socket(daemon)); err == nil {
			_ = connection.Close()
			return
		}
		if time.Now().After(until) {
			log, _ := os.ReadFile(path(daemon + ".log"))
			complaint, _ := os.ReadFile(path(daemon + ".err"))
			t.Fatalf("%s does not answer 20 s after its start:\n%s%s", daemon, complaint, log)
		}
	}
}

func (frr *FRR) load(t testing.TB, arguments ...string) {
	t.Helper()
	words := frr.vtysh(t, append([]string{"--config_dir", frr.Folder, "-b"}, arguments...)...)
	told := Run(t, words...)
	// A daemon that is just reading what it starts with holds mgmtd's lock for a moment.
	for until := time.Now().Add(10 * time.Second); strings.Contains(told, "locked by another session") && time.Now().Before(until); {
		time.Sleep(50 * time.Millisecond)
		told = Run(t, words...)
	}
	for line := range strings.Lines(told) {
		if strings.HasPrefix(line, "%") || strings.Contains(line, "Unknown command") || strings.HasPrefix(line, "line ") {
			t.Fatalf("FRR %s does not take its configuration:\n%s", frr.Version, told)
		}
	}
}

func (frr *FRR) vtysh(t testing.TB, arguments ...string) []string {
	t.Helper()
	program, err := frrProgram(frr.Version, "vtysh")
	if err != nil {
		t.Fatal(err)
	}
	return append(append(program, "--vty_socket", frr.Folder), arguments...)
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

// frr10Root is the folder named by RAILWRIGHT_FRR10, or that of scripts/unpack-frr10 in this checkout.
func frr10Root() string {
	if named := os.Getenv("RAILWRIGHT_FRR10"); named != "" {
		return named
	}
	_, here, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(here), "../../.cache/frr10")
}
