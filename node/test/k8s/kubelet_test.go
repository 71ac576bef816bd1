//go:build k8s

package k8s

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// startContainers starts containerd and imports the images.
func (n *node) startContainers(t *testing.T) {
	t.Helper()
	tools := n.cluster.tools
	configuration := filepath.Join(n.Folder, "containerd.toml")
	check(t, os.WriteFile(configuration, fmt.Appendf(nil, `version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = %q
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.grpc.v1.cri".containerd]
    default_runtime_name = "runc"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
      runtime_type = "io.containerd.runc.v2"
      [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
        BinaryName = %q
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/opt/cni/bin"
    conf_dir = "/etc/cni/net.d"
`, pauseImage, tools+"/bin/runc"), 0o644))
	n.Launch(t, "containerd", "containerd", "--config", configuration)
	await(t, n.Name+"'s containerd", 20*time.Second, func() string {
		connection, err := net.Dial("unix", n.path("/run/containerd/containerd.sock"))
		if err != nil {
			return err.Error()
		}
		_ = connection.Close()
		return ""
	})
	for _, archive := range n.cluster.images {
		n.Run(t, "ctr", "--namespace", "k8s.io", "images", "import", archive)
	}
}

// installPlugins installs the CNI plugins of other projects, with Multus as the one that the runtime calls. The default
// network is part of Multus' configuration, because Multus loses fields of it if it is in a separate file.
func (n *node) installPlugins(t *testing.T) {
	t.Helper()
	for _, folder := range []string{n.cluster.plugins, filepath.Join(n.cluster.tools, "cni")} {
		plugins, err := filepath.Glob(folder + "/*")
		check(t, err)
		n.Run(t, append([]string{"install", "-D", "-t", "/opt/cni/bin"}, plugins...)...)
	}
	n.write(t, "/etc/cni/net.d/multus.d/multus.kubeconfig", n.cluster.read(t, "multus.kubeconfig"))
	const whereabouts = "/etc/cni/net.d/whereabouts.d/whereabouts."
	n.write(t, whereabouts+"kubeconfig", n.cluster.read(t, "whereabouts.kubeconfig"))
	n.write(t, whereabouts+"conf", fmt.Sprintf(`{"kubernetes": {"kubeconfig": %q}}`, whereabouts+"kubeconfig"))
	n.write(t, "/etc/cni/net.d/00-multus.conf", fmt.Sprintf(`{"cniVersion": "1.0.0", "name": "multus", "type": "multus",
 "kubeconfig": "/etc/cni/net.d/multus.d/multus.kubeconfig", "logFile": "/var/log/multus.log", "logLevel": "verbose",
 "delegates": [{"cniVersion": "1.0.0", "name": "default", "plugins": [{"type": "ptp", "mtu": 1500,
  "ipam": {"type": "host-local", "subnet": %q, "routes": [{"dst": "0.0.0.0/0"}]}}]}]}`, n.pods()))
}

// startKubelet starts kubelet and the device plugin with the devices that pods can request.
func (n *node) startKubelet(t *testing.T) {
	t.Helper()
	own, _ := n.management()
	configuration := filepath.Join(n.Folder, "kubelet.yaml")
	check(t, os.WriteFile(configuration, fmt.Appendf(nil, `apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
containerRuntimeEndpoint: unix:///run/containerd/containerd.sock
cgroupDriver: cgroupfs
cgroupRoot: %s
failCgroupV1: false
failSwapOn: false
protectKernelDefaults: true
enforceNodeAllocatable: []
authentication: {anonymous: {enabled: false}, webhook: {enabled: true}, x509: {clientCAFile: %s}}
evictionHard: {memory.available: 100Mi, nodefs.available: 1%%, imagefs.available: 1%%, nodefs.inodesFree: 1%%}
imageGCHighThresholdPercent: 100
resolvConf: ""
clusterDNS: [%s]
clusterDomain: cluster.local
nodeStatusUpdateFrequency: 1s
`, n.cgroup(), n.cluster.keys.path("ca.crt"), clusterDNS), 0o644))
	n.Launch(t, "kubelet", "kubelet", "--config="+configuration, "--hostname-override="+n.Name,
		"--kubeconfig="+n.cluster.keys.path("node-"+n.Name+".kubeconfig"), "--node-ip="+own.String(),
		"--cert-dir="+filepath.Join(n.Folder, "kubelet"))
	await(t, n.Name+"'s kubelet", 30*time.Second, func() string {
		_, err := os.Stat(n.path("/var/lib/kubelet/device-plugins/kubelet.sock"))
		if err != nil {
			return err.Error()
		}
		return ""
	})
	devices := []string{"nvidia.com/gpu=" + numbered("gpu%d", 8) + "@" + n.cluster.gpuMounts()}
	for rail := range n.cluster.rails {
		devices = append(devices, fmt.Sprintf("nvidia.com/mlnx_sriov_pf%d_vf=%s", rail+1,
			numbered(fmt.Sprintf("0000:%02x:00.%%d", 8+rail), 8)))
	}
	n.Launch(t, "deviceplugin", append([]string{"deviceplugin"}, devices...)...)
}

// killKubelet kills kubelet with SIGKILL, starts it again and waits until the device plugin has registered again. Until
// then kubelet knows the devices but considers none healthy, and rejects new pods for good.
func (n *node) killKubelet(t *testing.T) {
	t.Helper()
	before := n.registrations(t)
	n.Kill(t, "kubelet")
	n.Restart(t, "kubelet")
	resources := 1 + len(n.cluster.rails)
	await(t, "the device plugin's registration with the new kubelet", 30*time.Second, func() string {
		if made := n.registrations(t) - before; made < resources {
			return fmt.Sprintf("%d of %d resources", made, resources)
		}
		return ""
	})
	n.cluster.awaitDevices(t, n)
}

// registrations returns the number of registrations of the device plugin up to now.
func (n *node) registrations(t *testing.T) int {
	t.Helper()
	log, err := os.ReadFile(filepath.Join(n.Folder, "log", "deviceplugin.log"))
	check(t, err)
	return strings.Count(string(log), " registered resource=")
}

func numbered(format string, count int) string {
	var names []string
	for i := range count {
		names = append(names, fmt.Sprintf(format, i))
	}
	return strings.Join(names, ",")
}

// write writes a file at a path inside the node.
func (n *node) write(t *testing.T, seen, content string) {
	t.Helper()
	path := n.path(seen)
	check(t, os.MkdirAll(filepath.Dir(path), 0o755))
	check(t, os.WriteFile(path, []byte(content), 0o600))
}
