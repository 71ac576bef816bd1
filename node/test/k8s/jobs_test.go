//go:build k8s

package k8s

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"railwright/node/testlab"
)

const (
	// clusterDNS is the pods' name server: CoreDNS, in the control plane's namespace.
	clusterDNS = serviceAddress
	command    = "../../../.venv/bin/railwright"
	jobLabel   = "app.kubernetes.io/managed-by=railwright"
)

// jobsManifests are the objects that DNS for pods and MPIJobs need. The namespace restricted enforces Kubernetes'
// strictest Pod Security level.
const jobsManifests = `
apiVersion: v1
kind: Namespace
metadata: {name: restricted, labels: {pod-security.kubernetes.io/enforce: restricted}}
---
apiVersion: v1
kind: Namespace
metadata: {name: mpi-operator}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: dns}
rules:
- {apiGroups: [""], resources: [services, pods, namespaces], verbs: [list, watch]}
- {apiGroups: [discovery.k8s.io], resources: [endpointslices], verbs: [list, watch]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: dns}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: dns}
subjects: [{kind: User, name: dns, apiGroup: rbac.authorization.k8s.io}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: mpi-operator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: mpi-operator}
subjects: [{kind: User, name: mpi-operator, apiGroup: rbac.authorization.k8s.io}]
`

// startNames starts CoreDNS with its Corefile and permissions.
func (c *cluster) startNames(t *testing.T) {
	t.Helper()
	c.keys.user(t, "dns", "dns", apiServer)
	file := filepath.Join(c.folder, "Corefile")
	content := fmt.Sprintf(".:53 {\n  errors\n  kubernetes cluster.local {\n    kubeconfig %s\n  }\n}\n", c.keys.path("dns.kubeconfig"))
	check(t, os.WriteFile(file, []byte(content), 0o644))
	c.launch(t, "dns", "-conf", file)
}

// startOperator starts mpi-operator with the ClusterRole and the definition from its repository.
func (c *cluster) startOperator(t *testing.T) {
	t.Helper()
	for _, name := range []string{"cluster-role", "kubeflow.org_mpijobs"} {
		c.kubectl(t, "create", "-f", filepath.Join(c.tools, "mpi-operator", name+".yaml"))
	}
	c.kindsAreServed(t, "crd/mpijobs.kubeflow.org")
	c.keys.user(t, "mpi-operator", "mpi-operator", apiServer)
	c.launch(t, "mpi-operator", "-kubeConfig", c.keys.path("mpi-operator.kubeconfig"))
}

// importBenchmarks imports the image of this source tree on the nodes.
func (c *cluster) importBenchmarks(t *testing.T) {
	t.Helper()
	archive := filepath.Join(c.folder, "railwright-image.tar")
	testlab.Run(t, "../../../scripts/build-image", "--without-nixl", archive)
	c.logTime(t, "the image of benchmarks is built")
	var importing []*exec.Cmd
	for _, node := range c.nodes {
		command := node.Command("ctr", "--namespace", "k8s.io", "images", "import", archive)
		check(t, testlab.Start(command))
		importing = append(importing, command)
	}
	for _, command := range importing {
		check(t, command.Wait())
	}
	c.logTime(t, "the nodes have it")
}

// measured holds railwright's exit status, output and records.
type measured struct {
	Status  int
	Said    string
	Records []map[string]any
}

// measuring is a running railwright in the control plane's network, as on an operator's machine.
type measuring struct {
	command *exec.Cmd
	stderr  bytes.Buffer
	folder  string
}

func (c *cluster) measure(t *testing.T, arguments ...string) *measuring {
	t.Helper()
	return c.railwright(t, append(arguments, "--alone", "--force", "--silence", "300")...)
}

func (c *cluster) railwright(t *testing.T, arguments ...string) *measuring {
	t.Helper()
	program, err := filepath.Abs(command)
	check(t, err)
	run := &measuring{folder: t.TempDir()}
	settings := []string{"env", "KUBECONFIG=" + c.keys.path("admin.kubeconfig"), "PATH=" + c.path(), "RAILWRIGHT_NOISE=off", program}
	arguments = append(arguments, "-O", run.folder)
	run.command = c.control.Command(append(settings, arguments...)...)
	run.command.Stdout, run.command.Stderr = &run.stderr, &run.stderr
	check(t, testlab.Start(run.command))
	return run
}

func (m *measuring) wait(t *testing.T) measured {
	t.Helper()
	_ = m.command.Wait()
	found := measured{Status: m.command.ProcessState.ExitCode(), Said: m.stderr.String()}
	content, err := os.ReadFile(filepath.Join(m.folder, "results.jsonl"))
	if err != nil {
		return found
	}
	for line := range strings.Lines(string(content)) {
		var record map[string]any
		check(t, json.Unmarshal([]byte(line), &record))
		found.Records = append(found.Records, record)
	}
	return found
}

// checkComplete checks that the records are complete and contain ranks on both nodes.
func (m measured) checkComplete(t *testing.T, nodes []*node) {
	t.Helper()
	if len(m.Records) < 3 || m.Records[0]["record"] != "run" || m.Records[len(m.Records)-1]["record"] != "end" {
		t.Fatalf("status %d, records are incomplete: %v\n%s", m.Status, m.Records, m.Said)
	}
	if why := m.Records[len(m.Records)-1]["interrupted"]; why != nil {
		t.Errorf("interrupted: %v\n%s", why, m.Said)
	}
	for _, record := range m.Records[1 : len(m.Records)-1] {
		text := fmt.Sprint(record)
		if record["outcome"] == "failed" || record["outcome"] == "waived" {
			t.Errorf("not measured: %s\n%s", text, m.Said)
		}
		for _, node := range nodes {
			if !strings.Contains(text, node.Name) {
				t.Errorf("record does not mention %s: %s", node.Name, text)
			}
		}
	}
}

// nothingLeft checks that no object of railwright's jobs is left in the namespace.
func (c *cluster) nothingLeft(t *testing.T, namespace string) {
	t.Helper()
	kinds := "jobs,pods,services,secrets,configmaps"
	left := c.kubectl(t, "get", kinds, "-n", namespace, "-l", jobLabel, "-o", "name")
	for line := range strings.Lines(c.kubectl(t, "get", kinds, "-n", namespace, "-o", "name")) {
		if strings.Contains(line, "railwright-") { // objects that an operator creates have other labels
			left += line
		}
	}
	if left != "" {
		t.Errorf("objects left in %s:\n%s", namespace, left)
	}
}

// checkBetween checks that a proof of two pods has pairs, rails and collectives of their GPUs.
func checkBetween(t *testing.T, folder string, done measured) {
	t.Helper()
	var kept struct {
		Between struct {
			Said struct {
				Left    map[string]string `json:"left_out"`
				Missing map[string]string `json:"not_measured"`
			}
			Located any
			Rails   []struct{ Source, Destination string }
		}
	}
	content, err := os.ReadFile(filepath.Join(folder, "cluster.json"))
	check(t, err)
	check(t, json.Unmarshal(content, &kept))
	between := kept.Between
	if between.Located == nil || len(between.Rails) == 0 || len(between.Said.Left)+len(between.Said.Missing) > 0 {
		t.Errorf("pairs and rails must be complete, got %s\n%s", content, done.Said)
	}
	for _, rail := range between.Rails {
		if !strings.Contains(rail.Source, ":gpu") || !strings.Contains(rail.Destination, ":gpu") {
			t.Errorf("rails must be between GPUs, got %v", rail)
		}
	}
	records, err := os.ReadFile(filepath.Join(folder, "between/results.jsonl"))
	check(t, err)
	among := map[string]int{}
	for line := range strings.Lines(string(records)) {
		var record struct {
			Benchmark, Outcome string
			Parameters         struct{ Among string }
			Verification       struct {
				Wrong *int `json:"bytes_wrong"`
			}
		}
		check(t, json.Unmarshal([]byte(line), &record))
		if record.Benchmark != "nccl_all_reduce" {
			continue
		}
		if record.Outcome != "" || record.Verification.Wrong == nil || *record.Verification.Wrong != 0 {
			t.Errorf("NCCL must measure, and its bytes be right: %s", line)
		}
		among[record.Parameters.Among]++
	}
	if among["rails"] == 0 || len(among) < 2 {
		t.Errorf("NCCL must run over all GPUs and over each rail, got %v\n%s", among, done.Said)
	}
}

// jobs runs benchmarks with a pod on each node, as an Indexed Job and as an MPIJob.
func (c *cluster) jobs(t *testing.T) {
	c.apply(t, jobsManifests)
	c.startNames(t)
	c.importBenchmarks(t)
	c.makeGPUs(t)
	small := []string{"run", "mpi_latency", "-o", "sizes=8:64:x2", "--kubernetes", "--nodes", "2"}

	t.Run("each node proves itself under the restricted standard, and the pods measure between them", func(t *testing.T) {
		run := c.railwright(t, "prove", "--benchmarks", "core_latency,memory_copy,nccl_all_reduce", "-o", "memory_copy.sizes=1M",
			"-o", "nccl_all_reduce.sizes=64K", "--launches", "1", "--gpus-per-node", "2",
			"--kubernetes", "--nodes", "2", "--namespace", "restricted", "--force", "--silence", "300")
		done := run.wait(t)
		page, err := os.ReadFile(filepath.Join(run.folder, "report.html"))
		if err != nil || done.Status == 2 || !strings.Contains(done.Said, "2 hosts") ||
			!strings.Contains(done.Said, "an Indexed Job of 2 pods") {
			t.Fatalf("status %d, %v: %s", done.Status, err, done.Said)
		}
		for _, node := range c.nodes {
			records, err := os.ReadFile(filepath.Join(run.folder, "hosts", node.Name, "results.jsonl"))
			if err != nil || !bytes.Contains(records, []byte(`"record":"end"`)) || !bytes.Contains(page, []byte(node.Name)) {
				t.Errorf("no records of %s: %v\n%s", node.Name, err, done.Said)
			}
		}
		checkBetween(t, run.folder, done)
		c.nothingLeft(t, "restricted")
	})
	t.Run("GPUs of two pods over the default network and over a rail of the pods' network", c.gpusOverBothNetworks)
	t.Run("a job that cannot be scheduled is removed", func(t *testing.T) {
		done := c.measure(t, append(small, "--namespace", "restricted", "--gpus-per-node", "9", "--start-within", "4")...).wait(t)
		if done.Status != 3 || !strings.Contains(done.Said, "Insufficient nvidia.com/gpu") {
			t.Errorf("status %d: %s", done.Status, done.Said)
		}
		c.nothingLeft(t, "restricted")
	})
	t.Run("a pod that is killed is named, and Ctrl-C removes the job", func(t *testing.T) {
		run := c.measure(t, append(small, "--namespace", "restricted", "--launches", "500")...)
		defer run.command.Process.Kill() //nolint:errcheck // it has already exited unless the test failed
		awaitEvery(t, kubectlPause, "a record", 3*time.Minute, func() string {
			content, _ := os.ReadFile(filepath.Join(run.folder, "results.jsonl"))
			if bytes.Count(content, []byte("\n")) > 1 {
				return ""
			}
			return "none"
		})
		second := strings.TrimSpace(c.kubectl(t, "get", "pods", "-n", "restricted", "-l", jobLabel+",batch.kubernetes.io/job-completion-index=1", "-o", "name"))
		// The shell may be killed with its pod (137) before it exits.
		output, err := c.tryKubectl("", "exec", "-n", "restricted", second, "--", "/bin/sh", "-c", "kill -TERM 1")
		if err != nil && !strings.Contains(output, "exit code 137") {
			t.Fatalf("cannot kill the pod: %v: %s", err, output)
		}
		awaitEvery(t, kubectlPause, "the death of a pod", 3*time.Minute, func() string {
			content, _ := os.ReadFile(filepath.Join(run.folder, "results.jsonl"))
			if bytes.Contains(content, []byte(`"failed"`)) {
				return ""
			}
			return "no failed launch"
		})
		check(t, run.command.Process.Signal(syscall.SIGINT)) // `ip netns exec` has executed railwright in its own process
		done := run.wait(t)
		if name := strings.TrimPrefix(second, "pod/"); !strings.Contains(done.Said, name) || !strings.Contains(done.Said, "exit status") {
			t.Errorf("output must name the pod that died: %s", done.Said)
		}
		last := done.Records[len(done.Records)-1]
		if done.Status != 3 || last["record"] != "end" || last["interrupted"] == nil {
			t.Errorf("status %d, not marked: %v\n%s", done.Status, last, done.Said)
		}
		c.nothingLeft(t, "restricted")
	})
	t.Run("an MPIJob with devices, as root", func(t *testing.T) {
		c.startOperator(t)
		done := c.measure(t, append(small, "--namespace", "tenant1", "--rdma", "nvidia.com/mlnx_sriov_pf1_vf=1",
			"--gpus-per-node", "1", "--node-selector", "kubernetes.io/os=linux")...).wait(t)
		done.checkComplete(t, c.nodes)
		if !strings.Contains(done.Said, "an MPIJob of 2 pods") || !strings.Contains(done.Said, "as root with IPC_LOCK") {
			t.Errorf("wrong kind of job: %s", done.Said)
		}
		c.nothingLeft(t, "tenant1")
	})
}
