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
	// Words that a line of the guest begins with, where it is for us and not for the reader.
	statusWord = "guest-status "
	cutWord    = "guest-cut "
)

// machine is a virtual one that has two NICs with VFs and runs one test of ./guest.
type machine struct {
	t      *testing.T
	folder string
	qemu   *exec.Cmd
	lines  io.ReadCloser
	killer *time.Timer
	begun  time.Time
}

// outcome of a run.
type outcome struct {
	// status of the test inside; -1: the machine ended before it did.
	status int
	// cut is what the guest said when it asked for its power to be cut; empty: it did not.
	cut   string
	lines []string
}

// boot the machine for one test of ./guest. A disk is the file of one that stays from boot to boot; empty: none.
// The words are the test's own arguments.
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
	arguments := append([]string{"-test.v", "-test.timeout=" + guestBound(), "-test.run=^" + test + "$"}, options...)
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
		// Kernels of Debian do not run under every KVM; emulated they run everywhere. The guest's clock goes by 1 ns for each
		// instruction: a host that is slow or busy does not run it into its own time-outs, and figures can be compared.
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

// cutPower at once: what the guest had not synced to its disk is lost.
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

// follow the guest until it ends, or until it asks for its power to be cut.
func (m *machine) follow() outcome {
	t := m.t
	t.Helper()
	seen := outcome{status: -1}
	scanner := bufio.NewScanner(m.lines)
	scanner.Buffer(make([]byte, 1<<16), 1<<20)
	for scanner.Scan() {
		line := strings.TrimRight(scanner.Text(), "\r")
		if device, requested := strings.CutPrefix(line, cutWord); requested {
			m.cutPower()
			seen.cut = device
			break
		}
		if status, ended := strings.CutPrefix(line, statusWord); ended {
			if _, err := fmt.Sscanf(status, "%d", &seen.status); err != nil {
				t.Errorf("a status that is none: %q", line)
			}
		}
		seen.lines = append(seen.lines, line)
		t.Log(line)
	}
	timely := m.killer.Stop()
	_ = m.qemu.Wait()
	if !timely {
		t.Errorf("the machine was ended: it ran for %v", longestRun())
	}
	used := m.qemu.ProcessState.UserTime() + m.qemu.ProcessState.SystemTime()
	t.Logf("this machine ran for %.0f s, and used %.0f s of a core", time.Since(m.begun).Seconds(), used.Seconds())
	return seen
}

// run one test inside to its end, or one part of it, beside others: a machine emulates one core. Its failure is this test's.
func run(t *testing.T, test, part string, arguments ...string) {
	t.Helper()
	t.Parallel()
	chosen := test
	if part != "" {
		chosen += "$/^" + part
	}
	seen := boot(t, chosen, "", arguments...).follow()
	if seen.status != 0 {
		t.Fatalf("inside, %s ended with status %d (-1: not at all)", test, seen.status)
	}
	// A name that no test has would pass.
	for _, line := range seen.lines {
		if strings.HasPrefix(strings.TrimSpace(line), "--- PASS: "+path.Join(test, part)) {
			return
		}
	}
	t.Fatalf("inside, there is no %s, or it was skipped", path.Join(test, part))
}
