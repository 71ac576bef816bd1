//go:build k8s

package lab

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"

	"railwright/node/internal/tenants"
	"railwright/node/internal/tenants/kubernetes"
	"railwright/node/testlab"
	"railwright/node/testlab/railnode"
)

// largeTenantRecord is the result of TestLargeTenant, with memory in bytes and times in seconds.
type largeTenantRecord struct {
	Rails   int `json:"rails"`
	Nodes   int `json:"nodes"`
	Members int `json:"members"`
	// Before, Joined and After are the resident memory without the tenant, with it, and after the changes. Peak is the most.
	Before int64 `json:"resident_before_bytes"`
	Joined int64 `json:"resident_joined_bytes"`
	After  int64 `json:"resident_after_bytes"`
	Peak   int64 `json:"resident_peak_bytes"`
	// First is the time of the first ADD of the tenant's pod on all rails, which programs all members on each.
	First float64 `json:"first_add_s"`
	// Changes is the number of changes of another node that were heard.
	Changes int     `json:"changes"`
	CPU     float64 `json:"cpu_s_per_change"`
	// Tools is the CPU time of the programs that the daemon ran meanwhile, per second: ovs-ofctl, which compares all flows.
	Tools     float64 `json:"tools_cpu_s_per_s"`
	SwitchCPU float64 `json:"switch_cpu_s_per_change"`
	// Idle is the daemon's CPU time per second without changes.
	Idle float64 `json:"cpu_s_per_idle_s"`
	// Restart is the time from the start of another daemon with this state until all is found right.
	Restart     float64  `json:"restart_s"`
	LoadAverage []string `json:"load_average"`
}

const (
	farNodes     = 1000
	eachNode     = 64
	heardChanges = 200
	idleTime     = 30 * time.Second
)

// TestLargeTenant measures a daemon with two rails, or RAILWRIGHT_MEASURE_RAILS, in a tenant of 1,000 nodes x 64 addresses, with a real API server,
// Open vSwitch and FRR. It asserts that the flows follow, never a time.
func TestLargeTenant(t *testing.T) {
	if railnode.Measuring() == "" {
		t.Skip("takes minutes; scripts/measured/node-network/measure-directory runs it")
	}
	rails := 2
	if text := os.Getenv("RAILWRIGHT_MEASURE_RAILS"); text != "" {
		number, err := strconv.Atoi(text)
		if err != nil || number < 1 || eachNode%number != 0 {
			t.Fatalf("RAILWRIGHT_MEASURE_RAILS must divide %d, got %q", eachNode, text)
		}
		rails = number
	}
	nd := &node{Node: railnode.Alone(t, railnode.NewFRR, rails)}
	if err := os.MkdirAll(nd.Path("lib"), 0o755); err != nil {
		t.Fatal(err)
	}
	server := startAPIServer(t, nd.Host)
	server.apply(t, map[string]any{"apiVersion": "v1", "kind": "Node", "metadata": map[string]any{"name": nd.Name()}},
		map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": "red-1"}})
	nd.Configure(t, fmt.Sprintf("{kind: kubernetes, kubeconfig: %s}", server.kubeconfig))
	nd.runtime = newRuntime(t, nd)
	nd.Start(t, "")
	nd.Ready(t)
	notes, record := &loadRun{}, largeTenantRecord{Rails: rails, Nodes: farNodes, Members: farNodes * eachNode}
	notes.note(t)
	record.Before = nd.Resident(t)

	var lists []*libcni.NetworkConfigList
	for rail := range rails {
		list, err := libcni.ConfListFromBytes(nd.conflist(t, rail, ourPlugins(1)...))
		if err != nil {
			t.Fatal(err)
		}
		lists = append(lists, list)
	}
	run := &manyRailsRun{lists: lists}
	uid := server.kubectl(t, "", "get", "namespace", "red-1", "-o", "jsonpath={.metadata.uid}")
	space := kubernetes.SpaceName("ns:red-1@" + uid)
	epoch := server.kubectl(t, "", "get", "railepoch", "epoch", "-o", "jsonpath={.spec.id}")
	server.apply(t, map[string]any{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": space}})
	var far []map[string]any
	for number := range farNodes {
		far = append(far, farMembers(space, epoch, rails, number, 0))
	}
	server.apply(t, far...)
	pod := nd.newPod(t, "red-1")
	record.First = run.attach(t, pod).Seconds()
	members := func(changed int) {
		for _, rail := range nd.Rails {
			address := farAddress(rail.Number, eachNode/rails, 0, changed)
			testlab.Eventually(t, fmt.Sprintf("%s has flows of %s", rail.Bridge(), address), func() bool {
				return strings.Contains(nd.OVS.Ofctl(t, rail.Bridge(), "dump-flows", "ip,nw_src="+address.String()), address.String())
			})
		}
	}
	members(0)
	record.Joined, record.Peak = nd.Resident(t), nd.Peak(t)
	own, _ := cpu(t, nd.Pid())
	time.Sleep(idleTime)
	later, _ := cpu(t, nd.Pid())
	record.Idle = (later - own).Seconds() / idleTime.Seconds()

	own, tools := cpu(t, nd.Pid())
	others, _ := cpu(t, nd.switchPid(t))
	began := time.Now()
	for changed := 1; changed <= heardChanges; changed++ {
		server.apply(t, farMembers(space, epoch, rails, 0, changed))
		members(changed)
	}
	took := time.Since(began).Seconds()
	record.Changes = heardChanges
	later, toolsLater := cpu(t, nd.Pid())
	othersLater, _ := cpu(t, nd.switchPid(t))
	record.CPU = ((later - own).Seconds() - record.Idle*took) / heardChanges
	record.Tools = (toolsLater - tools).Seconds() / took
	record.SwitchCPU = (othersLater - others).Seconds() / heardChanges
	record.After, record.Peak = nd.Resident(t), nd.Peak(t)

	nd.Kill(t)
	began = time.Now()
	nd.Start(t, "")
	testlab.Eventually(t, "all attachments are complete", func() bool { return len(nd.listProblems(t, rails)) == 0 })
	record.Restart = time.Since(began).Seconds()
	members(heardChanges)
	notes.note(t)
	record.LoadAverage = notes.record.LoadAverage
	railnode.Keep(t, record)
	run.detach(t, pod)
}

// farAddress is the first of a node's addresses on a rail that has so many of each node, after a number of changes.
func farAddress(rail, each, number, changed int) netip.Addr {
	index := number * each
	if changed > 0 {
		index = farNodes*each + changed
	}
	return netip.AddrFrom4([4]byte{10, byte(rail + 1), byte(64 + index>>8), byte(index)})
}

// farMembers are the members of another node.
func farMembers(space, epoch string, rails, number, changed int) map[string]any {
	spec, each := tenants.MembersSpec{Epoch: epoch}, eachNode/rails
	for rail := range rails {
		spec.Addresses = append(spec.Addresses, farAddress(rail, each, number, changed))
		address := farAddress(rail, each, number, 0)
		for range each - 1 {
			address = address.Next()
			spec.Addresses = append(spec.Addresses, address)
		}
	}
	return map[string]any{
		"apiVersion": "network.railwright.dev/v1alpha1", "kind": "TenantMembers", "spec": spec,
		"metadata": map[string]any{"name": fmt.Sprintf("far-%d.%08x", number, number), "namespace": space},
	}
}

// switchPid returns the process ID of ovs-vswitchd.
func (nd *node) switchPid(t *testing.T) int {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(nd.OVS.Folder, testlab.Switch+".pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		t.Fatal(err)
	}
	return pid
}

// cpu returns the CPU time of a process, and that of its children that have ended.
func cpu(t *testing.T, pid int) (own, children time.Duration) {
	t.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		t.Fatal(err)
	}
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	ticks := func(field int) time.Duration {
		count, err := strconv.Atoi(fields[field])
		if err != nil {
			t.Fatal(err)
		}
		const perSecond = 100
		return time.Duration(count) * time.Second / perSecond
	}
	return ticks(11) + ticks(12), ticks(13) + ticks(14)
}

// apiServer is etcd and kube-apiserver in a namespace, with the custom resources of deploy/crds. It knows one user, who may
// do everything.
type apiServer struct {
	host       *testlab.Namespace
	binaries   string
	folder     string
	kubeconfig string
}

func startAPIServer(t *testing.T, host *testlab.Namespace) *apiServer {
	t.Helper()
	built, err := exec.Command("../k8s/build").Output()
	if err != nil {
		t.Fatalf("building kube-apiserver: %v", err)
	}
	s := &apiServer{host: host, binaries: filepath.Join(strings.TrimSpace(string(built)), "bin"), folder: t.TempDir()}
	s.kubeconfig = filepath.Join(s.folder, "kubeconfig")
	s.write(t, "kubeconfig", `apiVersion: v1
kind: Config
clusters: [{name: lab, cluster: {server: "https://127.0.0.1:6443", insecure-skip-tls-verify: true}}]
users: [{name: admin, user: {token: admin-token}}]
contexts: [{name: lab, context: {cluster: lab, user: admin}}]
current-context: lab
`)
	s.write(t, "tokens.csv", "admin-token,admin,admin,\"system:masters\"\n")
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	s.write(t, "sa.key", string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})))
	const store, peers = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
	s.run(t, "etcd", "--name=etcd", "--data-dir="+filepath.Join(s.folder, "etcd"), "--log-level=error", "--listen-client-urls="+store,
		"--advertise-client-urls="+store, "--listen-peer-urls="+peers, "--initial-advertise-peer-urls="+peers,
		"--initial-cluster=etcd="+peers, "--unsafe-no-fsync")
	s.run(t, "kube-apiserver", "--etcd-servers="+store, "--secure-port=6443", "--bind-address=127.0.0.1", "--advertise-address=192.0.2.254",
		"--cert-dir="+filepath.Join(s.folder, "certs"), "--authorization-mode=RBAC", "--token-auth-file="+filepath.Join(s.folder, "tokens.csv"),
		"--service-account-issuer=https://railwright.test", "--service-account-key-file="+filepath.Join(s.folder, "sa.key"),
		"--service-account-signing-key-file="+filepath.Join(s.folder, "sa.key"), "--service-cluster-ip-range=10.96.0.0/16",
		"--disable-admission-plugins=ServiceAccount")
	crds, err := filepath.Abs("../../deploy/crds")
	if err != nil {
		t.Fatal(err)
	}
	testlab.UntilRight(t, func() string {
		output, err := s.try("", "apply", "-k", crds)
		if err != nil {
			return output
		}
		return ""
	})
	s.kubectl(t, "", "wait", "--for=condition=Established", "--timeout=60s", "crd", "--all")
	return s
}

func (s *apiServer) write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(s.folder, name), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// run starts a program that ends with the test.
func (s *apiServer) run(t *testing.T, name string, arguments ...string) {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(s.folder, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	command := s.host.Command(append([]string{filepath.Join(s.binaries, name)}, arguments...)...)
	command.Stdout, command.Stderr, command.Dir = log, log, s.folder
	if err := testlab.Start(command); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		if content, err := os.ReadFile(log.Name()); err == nil && t.Failed() {
			t.Logf("%s: %s", name, content[max(0, len(content)-3000):])
		}
	})
}

func (s *apiServer) try(input string, arguments ...string) (string, error) {
	command := s.host.Command(append([]string{filepath.Join(s.binaries, "kubectl"), "--kubeconfig=" + s.kubeconfig}, arguments...)...)
	command.Stdin = strings.NewReader(input)
	var stdout, stderr strings.Builder
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		return stdout.String() + stderr.String(), err
	}
	return stdout.String(), nil
}

func (s *apiServer) kubectl(t *testing.T, input string, arguments ...string) string {
	t.Helper()
	output, err := s.try(input, arguments...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(arguments, " "), err, output)
	}
	return output
}

// apply creates objects, or makes them as these.
func (s *apiServer) apply(t *testing.T, objects ...map[string]any) {
	t.Helper()
	list, err := json.Marshal(map[string]any{"apiVersion": "v1", "kind": "List", "items": objects})
	if err != nil {
		t.Fatal(err)
	}
	s.kubectl(t, string(list), "apply", "--server-side", "--force-conflicts", "-f", "-")
}
