package chain

import (
	"debug/elf"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"railwright/node/internal/cni/cnitest"
	"railwright/node/testlab"
	"railwright/node/testlab/railnode"
)

const (
	mostProgramBytes = 12 << 20
	starts           = 100
	// mostOwnTime of a start: the processor's, which others on the machine do not lengthen as they do the clock's.
	mostOwnTime = 15 * time.Millisecond
)

func TestTheProgramIsSmallStaticAndWithoutTheDaemonsLibraries(t *testing.T) {
	ours := railnode.Plugins(t)
	path := filepath.Join(ours, "railwright-cni")
	found, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%.1f MB", float64(found.Size())/1e6)
	if found.Size() > mostProgramBytes {
		t.Errorf("%d bytes", found.Size())
	}
	program, err := elf.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer program.Close()
	for _, segment := range program.Progs {
		if segment.Type == elf.PT_INTERP {
			t.Error("it needs a dynamic linker")
		}
	}
	told, err := exec.Command("go", "list", "-deps", "../../cmd/railwright-cni").Output()
	if err != nil {
		t.Fatal(err)
	}
	for _, dependency := range strings.Fields(string(told)) {
		for _, unwanted := range []string{"k8s.io/", "libovsdb", "prometheus", "fsnotify"} {
			if strings.Contains(dependency, unwanted) {
				t.Errorf("it has %s in it", dependency)
			}
		}
	}
}

func TestAStartIsShort(t *testing.T) {
	ours := railnode.Plugins(t)
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
		t.Logf("%-7s of %d: processor p50 %s p99 %s; wall p50 %s p99 %s", command, starts,
			own[starts/2], own[starts*99/100], wall[starts/2], wall[starts*99/100])
		if own[starts/2] > mostOwnTime {
			t.Errorf("%s: %s of the processor's time, more than %s", command, own[starts/2], mostOwnTime)
		}
	}
}
