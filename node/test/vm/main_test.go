//go:build vm

// Package vm tests the node network on NICs with VFs in a virtual machine. README.md explains what the tests prove.
//
//	go test -tags vm ./test/vm/
//
// The tests need root and the programs that ./build lists. The first run builds the machine, which takes some minutes.
// RAILWRIGHT_VM_KEEP=1 keeps the folder of each run with all logs and prints its path.
package vm

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

func TestMain(m *testing.M) {
	code := m.Run()
	if made, err := built(); err == nil {
		_ = os.RemoveAll(made.programs)
	}
	os.Exit(code)
}

// parts are the folders that every run of the machine uses.
type parts struct {
	// machine is the folder that ./build prints. programs is the folder of the guest's programs: bin/ has the CNI
	// plugins and both builds of railwrightd, guest is the test program.
	machine, programs string
}

// built builds the parts once for all tests.
var built = sync.OnceValues(func() (parts, error) {
	machine, err := folderOf("./build")
	if err != nil {
		return parts{}, err
	}
	tools, err := folderOf("../tools/build")
	if err != nil {
		return parts{}, err
	}
	programs, err := os.MkdirTemp("", "rwt-vm-programs-")
	if err != nil {
		return parts{}, err
	}
	bin := filepath.Join(programs, "bin")
	compile := func(arguments ...string) []string {
		return append([]string{"go", arguments[0], "-trimpath", "-ldflags=-s -w"}, arguments[1:]...)
	}
	const daemon = "../../cmd/railwrightd"
	for _, argv := range [][]string{
		{"../../cmd/railwright-cni/build", bin},
		compile("build", "-o", filepath.Join(bin, "railwrightd"), daemon),
		compile("build", "-tags", "failpoints", "-o", filepath.Join(bin, "railwrightd-failpoints"), daemon),
		compile("test", "-c", "-tags", "vmguest", "-o", filepath.Join(programs, "guest"), "./guest"),
		{"cp", filepath.Join(tools, "cnitool"), filepath.Join(tools, "host-local"), filepath.Join(tools, "ovs"), bin},
		{"cp", filepath.Join(machine, "fsw.ko"), programs},
	} {
		command := exec.Command(argv[0], argv[1:]...)
		command.Env = append(os.Environ(), "CGO_ENABLED=0")
		if output, err := command.CombinedOutput(); err != nil {
			_ = os.RemoveAll(programs)
			return parts{}, fmt.Errorf("%v: %w\n%s", argv, err, output)
		}
	}
	return parts{machine, programs}, nil
})

// folderOf runs a build script and returns the folder that it prints.
func folderOf(script string) (string, error) {
	command := exec.Command(script)
	var complaints strings.Builder
	command.Stderr = &complaints
	output, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", script, err, complaints.String())
	}
	return strings.TrimSpace(string(output)), nil
}
