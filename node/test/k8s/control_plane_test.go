//go:build k8s

package k8s

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"railwright/node/testlab"
)

const (
	// serviceAddress is the API server's service address. The control plane owns it, so that no proxy is needed for
	// this single service.
	serviceAddress = "10.96.0.1"
	apiServer      = "https://" + serviceAddress
	kubectlPause   = 250 * time.Millisecond
)

// startControlPlane starts etcd, the API server and the other control plane components in a namespace of their own.
func (c *cluster) startControlPlane(t *testing.T) {
	t.Helper()
	c.control = testlab.NewNamespace(t, "control")
	c.control.IP(t, "address", "add", serviceAddress+"/32", "dev", "lo")
	c.control.Run(t, "sysctl", "-qw", "net.ipv4.ip_forward=1")
	keys := c.keys
	keys.server(t, "apiserver", []string{"kubernetes", "kubernetes.default", "kubernetes.default.svc"}, serviceAddress, "127.0.0.1")
	keys.user(t, "admin", "admin", apiServer, "system:masters")
	keys.user(t, "kubelet-client", "apiserver", apiServer, "system:masters")
	keys.user(t, "controllers", "system:kube-controller-manager", apiServer)
	keys.user(t, "scheduler", "system:kube-scheduler", apiServer)
	keys.user(t, "multus", "multus", apiServer)
	keys.user(t, "whereabouts", "whereabouts", apiServer)

	const store, peers = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
	c.launch(t, "etcd", "--name=etcd", "--data-dir="+filepath.Join(c.folder, "etcd"), "--log-level=warn",
		"--listen-client-urls="+store, "--advertise-client-urls="+store, "--listen-peer-urls="+peers,
		"--initial-advertise-peer-urls="+peers, "--initial-cluster=etcd="+peers, "--unsafe-no-fsync")
	c.launch(t, "kube-apiserver", "--etcd-servers="+store, "--secure-port=443", "--advertise-address="+serviceAddress,
		"--service-cluster-ip-range=10.96.0.0/16", "--authorization-mode=Node,RBAC", "--allow-privileged=true",
		"--tls-cert-file="+keys.path("apiserver.crt"), "--tls-private-key-file="+keys.path("apiserver.key"),
		"--client-ca-file="+keys.path("ca.crt"), "--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-signing-key-file="+keys.path("service-accounts.key"),
		"--service-account-key-file="+keys.path("service-accounts.pub"),
		"--kubelet-client-certificate="+keys.path("kubelet-client.crt"),
		"--kubelet-client-key="+keys.path("kubelet-client.key"), "--kubelet-preferred-address-types=InternalIP",
		"--enable-priority-and-fairness=false", "--profiling=false")
	c.awaitAPI(t)
	as := func(name string) []string {
		path := keys.path(name + ".kubeconfig")
		return []string{"--kubeconfig=" + path, "--authentication-kubeconfig=" + path, "--authorization-kubeconfig=" + path,
			"--leader-elect=false", "--profiling=false"}
	}
	c.launch(t, "kube-controller-manager", append(as("controllers"), "--use-service-account-credentials=true",
		"--service-account-private-key-file="+keys.path("service-accounts.key"), "--root-ca-file="+keys.path("ca.crt"))...)
	c.launch(t, "kube-scheduler", as("scheduler")...)
}

func (c *cluster) awaitAPI(t *testing.T) {
	t.Helper()
	awaitEvery(t, kubectlPause, "the API server", time.Minute, func() string {
		output, err := c.tryKubectl("", "get", "--raw", "/readyz")
		if err != nil {
			return output
		}
		return ""
	})
}

// launch starts a component of the control plane. Its log is FOLDER/NAME.log.
func (c *cluster) launch(t *testing.T, name string, arguments ...string) {
	t.Helper()
	c.components[name] = &component{argv: append([]string{filepath.Join(c.tools, "bin", name)}, arguments...)}
	c.start(t, name)
	t.Cleanup(func() { c.kill(name) })
}

// component is a process of the control plane.
type component struct {
	argv    []string
	command *exec.Cmd
}

func (c *cluster) start(t *testing.T, name string) {
	t.Helper()
	log, err := os.OpenFile(filepath.Join(c.folder, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	check(t, err)
	defer log.Close() //nolint:errcheck // the child has its own descriptor
	component := c.components[name]
	component.command = c.control.Command(component.argv...)
	component.command.Stdout, component.command.Stderr = log, log
	check(t, testlab.Start(component.command))
}

// kill kills a component with SIGKILL.
func (c *cluster) kill(name string) {
	_ = c.components[name].command.Process.Kill()
	_ = c.components[name].command.Wait()
}

// tryKubectl runs kubectl as the cluster's administrator with this standard input.
func (c *cluster) tryKubectl(input string, arguments ...string) (string, error) {
	argv := append([]string{filepath.Join(c.tools, "bin/kubectl"),
		"--kubeconfig=" + c.keys.path("admin.kubeconfig"), "--request-timeout=30s"}, arguments...)
	command := c.control.Command(argv...)
	command.Stdin = strings.NewReader(input)
	var stdout, complaints strings.Builder
	command.Stdout, command.Stderr = &stdout, &complaints
	if err := command.Run(); err != nil {
		return stdout.String() + complaints.String(), err
	}
	return stdout.String(), nil
}

// kubectl runs kubectl and returns its output. It fails the test if kubectl fails.
func (c *cluster) kubectl(t *testing.T, arguments ...string) string {
	t.Helper()
	output, err := c.tryKubectl("", arguments...)
	if err != nil {
		t.Fatalf("kubectl %s: %v\n%s", strings.Join(arguments, " "), err, output)
	}
	return output
}

// apply applies manifests with kubectl.
func (c *cluster) apply(t *testing.T, manifests ...string) {
	t.Helper()
	output, err := c.tryKubectl(strings.Join(manifests, "\n---\n"), "apply", "-f", "-")
	if err != nil {
		t.Fatalf("kubectl apply: %v\n%s", err, output)
	}
}

// build runs a build script and returns the folder that it prints.
func build(t *testing.T, script string) string {
	t.Helper()
	command := exec.Command(script)
	command.Stderr = os.Stderr
	output, err := command.Output()
	if err != nil {
		t.Fatalf("%s: %v\nhint: run the script by hand to see its whole output", script, err)
	}
	return strings.TrimSpace(string(output))
}
