package chain

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"railwright/node/internal/cni/cnitest"
	"railwright/node/internal/release"
	"railwright/node/testlab"
	"railwright/node/testlab/railnode"
)

const (
	maxProgramBytes = 12 << 20
	starts          = 10
)

func TestTheProgramIsSmallStaticAndWithoutTheDaemonsLibraries(t *testing.T) {
	ours := railnode.Plugins(t)
	path := filepath.Join(ours, "railwright-cni")
	found, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.1f MB", float64(found.Size())/1e6)
	if found.Size() > maxProgramBytes {
		t.Errorf("%d bytes", found.Size())
	}
	program, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	for _, segment := range program.Progs {
		if segment.Type == elf.PT_INTERP {
			t.Error("plugin needs a dynamic linker")
		}
	}
	if output, err := exec.Command(filepath.Join(ours, "ovs-provider"), "--version").Output(); err != nil ||
		string(output) != "railwright-cni "+release.Version+"\n" {
		t.Errorf("--version: %v, %q", err, output)
	}
	output, err := exec.Command("go", "list", "-deps", "../../cmd/railwright-cni").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, dependency := range strings.Fields(string(output)) {
		for _, unwanted := range []string{"k8s.io/", "libovsdb", "prometheus", "fsnotify"} {
			if strings.Contains(dependency, unwanted) {
				t.Errorf("plugin contains %s", dependency)
			}
		}
	}
}

// TestAStartIsShort checks that the plugin's package initialization makes at most a quarter of the daemon's
// allocations. It logs the start time without asserting it.
func TestAStartIsShort(t *testing.T) {
	ours := railnode.Plugins(t)
	plugin, daemonAllocates := allocates(t, filepath.Join(ours, "railwright-cni")), allocates(t, railnode.Daemon(t), "--help")
	if plugin == 0 || 4*plugin > daemonAllocates {
		t.Errorf("start of the plugin makes %d allocations, that of the daemon %d", plugin, daemonAllocates)
	}
	daemon := cnitest.Start(t)
	daemon.Answer = gatewayReply
	pod := testlab.NewNamespace(t, "pod")
	testlab.Cable(t, pod, "net1", testlab.NewNamespace(t, "host"), "veth0")
	recorded, err := os.ReadFile("../../internal/cni/testdata/result-1.1.0.json")
	if err != nil {
		t.Fatal(err)
	}
	previous := strings.NewReplacer(
		"HOST-MAC", "02:00:00:00:00:01", "POD-MAC", "02:00:00:00:00:02", "HOST-INTERFACE", "veth0", "NETNS", pod.Path(),
	).Replace(string(recorded))
	config := fmt.Sprintf(`{"cniVersion": "1.1.0", "name": "rail1", "socket": %q, "stateDir": %q, "prevResult": %s}`,
		daemon.Socket(), daemon.Folder, previous)
	for _, command := range []string{"VERSION", "ADD", "DEL"} {
		call := cnitest.Call{
			Program: filepath.Join(ours, "railwright-cni"), Command: command, ContainerID: "c1", Interface: "net1", Netns: pod.Path(),
			Args: podArgs, Config: config,
		}
		var own, wall []time.Duration
		for range starts {
			outcome := call.Do(t)
			if outcome.Err != nil {
				t.Fatalf("%s: %v", command, outcome.Err)
			}
			own, wall = append(own, outcome.Processor), append(wall, outcome.Wall)
		}
		slices.Sort(own)
		slices.Sort(wall)
		t.Logf("%-7s of %d: processor p50 %s max %s; wall p50 %s max %s", command, starts,
			own[starts/2], own[starts-1], wall[starts/2], wall[starts-1])
	}
}

var ofInit = regexp.MustCompile(`(?m)^init .* ([0-9]+) allocs$`)

// allocates returns the number of allocations that a program's packages make before main, as counted by Go's runtime.
func allocates(t *testing.T, argv ...string) int {
	t.Helper()
	command := exec.Command(argv[0], argv[1:]...)
	command.Env = []string{"GODEBUG=inittrace=1", "CNI_COMMAND=VERSION"}
	output, _ := command.CombinedOutput() // the plugin fails, because it gets no network configuration
	sum := 0
	for _, found := range ofInit.FindAllSubmatch(output, -1) {
		count, err := strconv.Atoi(string(found[1]))
		if err != nil {
			t.Fatal(err)
		}
		sum += count
	}
	return sum
}
