// Package railnode creates nodes of a GPU cluster for tests: rails with their leaves, Open vSwitch, FRR, and
// railwrightd in a separate process.
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

// Main runs the tests of a package and removes the programs that they built. It returns the exit status.
func Main(m *testing.M) int {
	defer func() {
		if folder, err := builds(); err == nil {
			_ = os.RemoveAll(folder)
		}
	}()
	return m.Run()
}

// Measuring returns the file that measurements are written to, or "" if the tests do not measure.
func Measuring() string { return os.Getenv("RAILWRIGHT_MEASURE") }

// Keep writes a record as JSON to the file that Measuring returns. It does nothing if that is empty.
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

// Daemon builds railwrightd once and returns its path. The build has failpoints unless Measuring is set: measurements
// use the shipped daemon.
func Daemon(t testing.TB) string { return must(t, daemon) }

// Plugins builds Railwright's CNI plugins once and returns their folder.
func Plugins(t testing.TB) string { return must(t, plugins) }

// Tools builds cnitool and the plugins of other projects once, with test/tools/build, and returns their folder.
func Tools(t testing.TB) string { return must(t, tools) }

func must(t testing.TB, built func() (string, error)) string {
	t.Helper()
	path, err := built()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// builds creates the folder for this process's builds.
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
	// Linking is faster without debug information.
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

// module returns the folder of this Go module.
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
