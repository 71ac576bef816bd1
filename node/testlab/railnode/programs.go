// Package railnode brings up nodes of a GPU cluster for tests: rails with their leaves, Open vSwitch and FRR, and
// railwrightd as a process of its own.
package railnode

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

// Main runs the tests of a package, and removes what they had built.
func Main(m *testing.M) int {
	defer func() {
		if folder, err := builds(); err == nil {
			_ = os.RemoveAll(folder)
		}
	}()
	return m.Run()
}

// Measuring is the file that a measurement is written to; empty: none is made.
func Measuring() string { return os.Getenv("RAILWRIGHT_MEASURE") }

// Keep what was measured, where a measurement is made.
func Keep(t testing.TB, record any) {
	t.Helper()
	if Measuring() == "" {
		return
	}
	content, err := json.MarshalIndent(record, "", " ")
	if err == nil {
		err = os.WriteFile(Measuring(), append(content, '\n'), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// Daemon gives the path of railwrightd, which is built once: what is measured is the daemon as it is shipped, else it is
// one that can be made to die.
func Daemon(t testing.TB) string { return must(t, daemon) }

// Plugins gives the folder of our plugins, built once.
func Plugins(t testing.TB) string { return must(t, plugins) }

// Tools gives the folder of cnitool and of others' plugins: test/tools/build.
func Tools(t testing.TB) string { return must(t, tools) }

func must(t testing.TB, built func() (string, error)) string {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// builds is a folder of this process's own.
var builds = sync.OnceValues(func() (string, error) { return os.MkdirTemp("", "rwt-built-") })

var daemon = sync.OnceValues(func() (string, error) {
	folder, err := builds()
	if err != nil {
		return "", err
	}
	path, tags := filepath.Join(folder, "railwrightd"), "failpoints"
	if Measuring() != "" {
		tags = ""
	}
	// Without what debuggers need the linker is through sooner.
	_, err = run("go", "-C", module(), "build", "-trimpath", "-ldflags=-s -w", "-tags", tags, "-o", path, "./cmd/railwrightd")
	return path, err
})

var plugins = sync.OnceValues(func() (string, error) {
	folder, err := builds()
	if err != nil {
		return "", err
	}
	folder = filepath.Join(folder, "plugins")
	_, err = run(filepath.Join(module(), "cmd/railwright-cni/build"), folder)
	return folder, err
})

var tools = sync.OnceValues(func() (string, error) { return run(filepath.Join(module(), "test/tools/build")) })

// module is the folder of this Go module.
func module() string {
	_, here, _, _ := runtime.Caller(0)
	return filepath.Join(filepath.Dir(here), "../..")
}

func run(argv ...string) (string, error) {
	command := exec.Command(argv[0], argv[1:]...)
	output, err := command.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return "", fmt.Errorf("%s: %w\n%s", command, err, exit.Stderr)
	}
	return strings.TrimSpace(string(output)), err
}
