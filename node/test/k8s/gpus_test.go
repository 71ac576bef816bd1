//go:build k8s

package k8s

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"railwright/node/testlab"
)

const (
	standIns = "../../../tests/stand_ins"
	// capturedHost is a capture of a machine with two H200.
	capturedHost = "../../../testdata/hosts/2xh200-firecracker-vm/machine.jsonl"
	hostBridge   = "sys/devices/pci0000:00"
	// driverFolder is where GKE's device plugin mounts NVIDIA's libraries. Its pods set LD_LIBRARY_PATH to it.
	driverFolder = "/usr/local/nvidia/lib64"
	// hostMemory makes NIXL take the memory of the stand-ins for what it is.
	hostMemory = "import railwright.native.nixl_memory as memory; memory.describe_memory = lambda buffer, host=memory.HOST: host\n"
)

// gpuMounts returns the file with the mounts and variables that containers with GPUs get.
func (c *cluster) gpuMounts() string { return filepath.Join(c.folder, "gpus.json") }

// sitePackages returns the Python packages beside railwright, which include NIXL.
func sitePackages(t *testing.T) string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(filepath.Dir(command), "../lib/python3*/site-packages"))
	if err != nil || len(found) != 1 {
		t.Fatalf("there must be one folder of packages, got %v", found)
	}
	folder, err := filepath.EvalSymlinks(found[0])
	check(t, err)
	folder, err = filepath.Abs(folder)
	check(t, err)
	return folder
}

// makeGPUs gives two GPUs to all containers that request any: stand-ins for CUDA and NCCL, the PCI functions of a
// captured machine, and this machine's NIXL, which the image lacks. Without NVML, UCX does not load its CUDA module.
func (c *cluster) makeGPUs(t *testing.T) {
	t.Helper()
	folder := filepath.Join(c.folder, "gpus")
	libraries, functions := filepath.Join(folder, "libraries"), filepath.Join(folder, "sys")
	check(t, makeFolders(libraries, functions))
	for source, name := range map[string]string{"cuda.c": "libcuda.so.1", "nccl.c": "libnccl.so.2"} {
		testlab.Run(t, "cc", "-std=c11", "-O2", "-fPIC", "-shared", "-pthread", "-Wl,-soname,"+name,
			"-o", filepath.Join(libraries, name), filepath.Join(standIns, source), "-ldl")
	}
	writeCaptured(t, functions)
	patch := filepath.Join(folder, "host-memory.pth")
	check(t, os.WriteFile(patch, []byte(hostMemory), 0o644))

	// The image has this machine's Debian, so the same Python.
	python, err := filepath.EvalSymlinks("/usr/bin/python3")
	check(t, err)
	packages := "/opt/railwright/lib/" + filepath.Base(python) + "/site-packages/"
	seen := map[string]string{libraries: driverFolder, functions: "/" + hostBridge, patch: packages + filepath.Base(patch)}
	for _, name := range []string{".nixl_cu13.mesonpy.libs", "nixl_cu13.libs"} {
		seen[filepath.Join(sitePackages(t), name)] = packages + name
	}
	var mounts []map[string]any
	for outside, inside := range seen {
		mounts = append(mounts, map[string]any{"host_path": outside, "container_path": inside, "read_only": true})
	}
	content, err := json.Marshal(map[string]any{"mounts": mounts, "envs": map[string]string{"LD_LIBRARY_PATH": driverFolder}})
	check(t, err)
	check(t, os.WriteFile(c.gpuMounts(), content, 0o644))
}

// writeCaptured writes the GPUs' files of the capture as the host bridge shows them.
func writeCaptured(t *testing.T, folder string) {
	t.Helper()
	file, err := os.Open(capturedHost)
	check(t, err)
	defer file.Close() //nolint:errcheck // it was only read
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		var entry struct {
			Path, Text string
			Base64     []byte
		}
		check(t, json.Unmarshal(lines.Bytes(), &entry))
		function, found := strings.CutPrefix(entry.Path, hostBridge+"/")
		if !found || !strings.HasPrefix(function, "0000:00:06.0/") && !strings.HasPrefix(function, "0000:00:07.0/") {
			continue
		}
		content := entry.Base64
		if content == nil {
			content = []byte(entry.Text)
		}
		path := filepath.Join(folder, function)
		check(t, makeFolders(filepath.Dir(path)))
		check(t, os.WriteFile(path, content, 0o644))
	}
	check(t, lines.Err())
}

// betweenGPUs are the benchmarks of both networks, with their path and the evidence of the interface: NCCL's log, and
// else the interface's counter.
var betweenGPUs = map[string]struct{ path, used string }{
	"mpi_bandwidth":   {"memory0@0>memory0@1", "%s of railwright-"},
	"nccl_all_reduce": {"gpu0@0>gpu1@1", ":%s, "},
	"kv_vram":         {"gpu0@0>gpu0@1", "%s of railwright-"},
}

// checkGPUs checks that NCCL and NIXL moved data between GPUs of both nodes over an interface of the pods, every byte of
// it right.
func (m measured) checkGPUs(t *testing.T, link string) {
	t.Helper()
	count := map[string]int{}
	for _, record := range m.Records {
		name, _ := record["benchmark"].(string)
		if record["record"] != "result" {
			continue
		}
		count[name]++
		checked, _ := record["verification"].(map[string]any)
		if bytes, _ := checked["bytes_checked"].(float64); bytes == 0 || checked["bytes_wrong"] != 0.0 {
			t.Errorf("%s: its bytes must be checked and right, got %v", name, checked)
		}
		wanted := betweenGPUs[name]
		if record["path"] != wanted.path {
			t.Errorf("%s must measure %s, got %v", name, wanted.path, record["path"])
		}
		if evidence := fmt.Sprint(record["evidence"]); !strings.Contains(evidence, fmt.Sprintf(wanted.used, link)) {
			t.Errorf("%s must use %s, got %s", name, link, evidence)
		}
	}
	for name := range betweenGPUs {
		if count[name] == 0 {
			t.Errorf("no result of %s: %v\n%s", name, m.Records, m.Said)
		}
	}
}

// gpusOverBothNetworks runs the same benchmarks between the GPUs of two pods over the cluster's default network and over
// a rail of the pods' network, and compares them.
func (c *cluster) gpusOverBothNetworks(t *testing.T) {
	words := []string{"run", "mpi_bandwidth", "nccl_all_reduce", "kv_vram", "-o", "mpi_bandwidth.sizes=8K",
		"-o", "nccl_all_reduce.sizes=1M", "-o", "nccl_all_reduce.placements=out of place", "-o", "kv_vram.sizes=1M",
		"-o", "kv_vram.links=gpu-gpu", "-o", "kv_vram.operations=WRITE", "-o", "kv_vram.pairs=first",
		"--kubernetes", "--nodes", "2", "--namespace", "tenant1", "--gpus-per-node", "2"}
	rail := []string{"--rdma", "nvidia.com/mlnx_sriov_pf1_vf=1", "--network", "sriov-pf1-vf", "--interfaces", "net1"}
	// NCCL alone moves more than 128 MiB. On the default network there are also records, logs and kubelet's reports.
	const least, most = 128 << 20, 32 << 20
	counters := map[string]func() int{
		"eth0": func() int { return c.received(t, c.control) },
		"net1": func() int { return c.received(t, c.leaves[0].Namespace) },
	}
	folders := map[string]string{}
	for link, more := range map[string][]string{"eth0": {"--interfaces", "eth0"}, "net1": rail} {
		before := map[string]int{}
		for name, count := range counters {
			before[name] = count()
		}
		run := c.measure(t, append(append([]string{}, words...), more...)...)
		done := run.wait(t)
		done.checkComplete(t, c.nodes)
		done.checkGPUs(t, link)
		for name, count := range counters {
			crossed := count() - before[name]
			if name == link && crossed < least || name != link && crossed > most {
				t.Errorf("over %s, %d bytes crossed the network of %s\n%s", link, crossed, name, done.Said)
			}
		}
		folders[link] = run.folder
		c.nothingLeft(t, "tenant1")
	}
	// Status 3: one launch of each decides nothing.
	output, err := exec.Command(command, "compare", folders["eth0"], folders["net1"]).CombinedOutput()
	page := strings.Join(strings.Fields(string(output)), " ")
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Errorf("compare: %v\n%s", err, output)
	}
	shown := []string{"--interfaces eth0", "--interfaces net1"}
	for name, wanted := range betweenGPUs {
		shown = append(shown, name+" "+wanted.path)
	}
	for _, text := range shown {
		if !strings.Contains(page, text) {
			t.Errorf("compare must show %q:\n%s", text, output)
		}
	}
	if strings.Contains(page, "not compared") {
		t.Errorf("compare left points out:\n%s", output)
	}
}

// received returns the number of bytes that a namespace has received from all nodes.
func (c *cluster) received(t *testing.T, namespace *testlab.Namespace) int {
	t.Helper()
	total := 0
	for _, node := range c.nodes {
		total += number(t, strings.TrimSpace(namespace.Run(t, "cat", "/sys/class/net/"+node.Name+"/statistics/rx_bytes")))
	}
	return total
}
