//go:build vm

package vm

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"railwright/node/testlab"
)

const (
	// Prefixes of the guest's output lines that are messages to this program.
	statusWord = "guest-status "
	cutWord    = "guest-cut "
)

// machine is a virtual machine with two NICs with VFs that runs one test of ./guest.
type machine struct {
	t      *testing.T
	folder string
	qemu   *exec.Cmd
	lines  io.ReadCloser
	killer *time.Timer
	begun  time.Time
}

// outcome is the result of a run.
type outcome struct {
	// status is the exit status of the test in the guest, or -1 if the machine ended first.
	status int
	// cut is the step at which the guest requested a power cut, or "" if it did not.
	cut   string
	lines []string
}

// boot boots the machine for one test of ./guest. disk is the file of a disk that persists across boots, or "" for
// none. options are the test's arguments.
func boot(t *testing.T, test, disk string, options ...string) *machine {
	t.Helper()
	made, err := built()
	if err != nil {
		t.Fatal(err)
	}
	folder, err := os.MkdirTemp("", "rwt-vm-")
	if err != nil {
		t.Fatal(err)
	}
	started := &machine{t: t, folder: folder, begun: time.Now()}
	t.Cleanup(started.clear)
	arguments := append([]string{"-test.v", fmt.Sprintf("-test.short=%t", testing.Short()),
		"-test.timeout=" + guestBound(), "-test.run=^" + test + "$"}, options...)
	if err := errors.Join(
		os.Mkdir(filepath.Join(folder, "share"), 0o755),
		exec.Command("cp", "-r", "--reflink=auto", made.programs+"/.", filepath.Join(folder, "share")).Run(),
		os.WriteFile(filepath.Join(folder, "share", "arguments"), []byte(strings.Join(arguments, "\n")+"\n"), 0o644),
	); err != nil {
		t.Fatal(err)
	}
	started.launch(made, disk)
	return started
}

func (m *machine) launch(made parts, disk string) {
	t := m.t
	t.Helper()
	at := func(name string) string { return filepath.Join(made.machine, name) }
	arguments := []string{
		"--library-path", at("qemu/lib"), at("qemu/qemu-system-x86_64"), "-L", at("qemu/share"),
		// Debian's kernels do not run under every KVM, but run everywhere under emulation. The guest's clock advances
		// by 1 ns per instruction, so that a slow or busy host causes no timeouts in the guest, and figures are
		// comparable.
		"-machine", "q35", "-cpu", "max", "-smp", "1", "-m", "2048",
		"-accel", "tcg,thread=single", "-icount", "shift=0,sleep=on",
		"-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
		"-serial", "file:" + filepath.Join(m.folder, "console.log"), "-serial", "stdio",
		"-kernel", at("vmlinux"), "-initrd", at("initrd"),
		"-append", "console=ttyS0 panic=-1 mitigations=off quiet loglevel=3 net.ifnames=0",
		"-drive", "if=none,id=image,format=raw,readonly=on,file=" + at("root.ext4"), "-device", "virtio-blk-pci,drive=image",
		"-virtfs", "local,mount_tag=host,security_model=none,readonly=on,path=" + filepath.Join(m.folder, "share"),
	}
	if disk != "" {
		arguments = append(arguments, "-drive", "if=none,id=state,format=raw,file="+disk, "-device", "virtio-blk-pci,drive=state")
	}
	for nic := range 2 {
		arguments = append(arguments, "-device", fmt.Sprintf("pcie-root-port,id=port%d,slot=%d,chassis=%d", nic, nic+1, nic+1),
			"-netdev", fmt.Sprintf("hubport,id=net%d,hubid=0", nic),
			"-device", fmt.Sprintf("igb,bus=port%d,netdev=net%d", nic, nic))
	}
	m.qemu = exec.Command(at("qemu/lib/ld-linux-x86-64.so.2"), arguments...)
	m.qemu.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	complaints, err := os.Create(filepath.Join(m.folder, "qemu.log"))
	if err != nil {
		t.Fatal(err)
	}
	defer complaints.Close()
	m.qemu.Stderr = complaints
	m.lines, err = m.qemu.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := testlab.Start(m.qemu); err != nil {
		t.Fatal(err)
	}
	m.killer = time.AfterFunc(longestRun(), m.cutPower)
}

// cutPower cuts the power at once. Data that the guest has not synced to its disk is lost.
func (m *machine) cutPower() { _ = syscall.Kill(-m.qemu.Process.Pid, syscall.SIGKILL) }

func (m *machine) clear() {
	if m.qemu != nil && m.qemu.Process != nil && m.qemu.ProcessState == nil {
		m.cutPower()
		_ = m.qemu.Wait()
	}
	if m.t.Failed() {
		for _, name := range []string{"console.log", "qemu.log"} {
			if output, _ := os.ReadFile(filepath.Join(m.folder, name)); len(output) > 0 {
				m.t.Logf("%s ends:\n%s", name, output[max(0, len(output)-4000):])
			}
		}
	}
	if os.Getenv("RAILWRIGHT_VM_KEEP") != "" {
		m.t.Logf("the run's files are in %s", m.folder)
		return
	}
	_ = os.RemoveAll(m.folder)
}

// follow reads the guest's output until the guest ends or requests a power cut.
func (m *machine) follow() outcome {
	t := m.t
	t.Helper()
	seen := outcome{status: -1}
	scanner := bufio.NewScanner(m.lines)
	scanner.Buffer(make([]byte, 1<<16), 1<<20)
	for scanner.Scan() {
		line := strings.TrimRight(scanner.Text(), "\r")
		if step, requested := strings.CutPrefix(line, cutWord); requested {
			m.cutPower()
			seen.cut = step
			break
		}
		if status, ended := strings.CutPrefix(line, statusWord); ended {
			if _, err := fmt.Sscanf(status, "%d", &seen.status); err != nil {
				t.Errorf("status must be a number, got %q", line)
			}
		}
		seen.lines = append(seen.lines, line)
		t.Log(line)
	}
	timely := m.killer.Stop()
	_ = m.qemu.Wait()
	if !timely {
		t.Errorf("machine was killed after %v", longestRun())
	}
	used := m.qemu.ProcessState.UserTime() + m.qemu.ProcessState.SystemTime()
	t.Logf("this machine ran for %.0f s, and used %.0f s of a core", time.Since(m.begun).Seconds(), used.Seconds())
	return seen
}

// run runs a test, or one part of it, in a guest and fails if it fails. Machines run in parallel, because each emulates
// only one core.
func run(t *testing.T, test, part string, arguments ...string) {
	t.Helper()
	t.Parallel()
	chosen := test
	if part != "" {
		chosen += "$/^" + part
	}
	seen := boot(t, chosen, "", arguments...).follow()
	if seen.status != 0 {
		t.Fatalf("%s in the guest must end with status 0, got %d (-1: it did not end)", test, seen.status)
	}
	// A name that matches no test would pass.
	for _, line := range seen.lines {
		if strings.HasPrefix(strings.TrimSpace(line), "--- PASS: "+path.Join(test, part)) {
			return
		}
	}
	t.Fatalf("guest has no test %s, or skipped it", path.Join(test, part))
}
