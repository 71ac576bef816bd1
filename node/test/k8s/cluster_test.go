//go:build k8s

package k8s

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"railwright/node/testlab"
)

const (
	pauseImage = "railwright.test/pause:1"
	podImage   = "railwright.test/pod:1"
)

// cluster is a Kubernetes cluster of a control plane, nodes and the fabric of their rails.
type cluster struct {
	// folder holds all files that the cluster writes.
	folder string
	// tools is the folder that ./build prints, plugins the one that ../tools/build prints.
	tools, plugins string
	keys           *authority
	control        *testlab.Namespace
	components     map[string]*component
	nodes          []*node
	rails          []rail
	leaves         []*leaf
	// images are the image archives that each node imports.
	images  []string
	started time.Time
}

// startCluster starts a cluster with the given number of nodes and removes it at the end of the test.
func startCluster(t *testing.T, nodes int, rails ...rail) *cluster {
	t.Helper()
	cluster := &cluster{tools: build(t, "./build"), plugins: build(t, "../tools/build"), rails: rails, components: map[string]*component{}}
	// t.TempDir can return a path that is too long for a unix socket.
	folder, err := os.MkdirTemp("", "rwt-k8s-")
	check(t, err)
	cluster.folder = folder
	t.Cleanup(func() {
		if os.Getenv("RAILWRIGHT_K8S_KEEP") != "" {
			t.Logf("logs are in %s", folder)
			return
		}
		_ = os.RemoveAll(folder)
	})
	cluster.started = time.Now()
	cluster.keys = newAuthority(t, filepath.Join(folder, "keys"))
	cluster.startControlPlane(t)
	cluster.logTime(t, "the API server answers")
	cluster.installNetworks(t)
	cluster.makeImages(t)
	cluster.makeNodeImage(t)
	cluster.startFabric(t, nodes)
	for number := 1; number <= nodes; number++ {
		cluster.addNode(t, number)
	}
	for _, node := range cluster.nodes {
		cluster.kubectl(t, "wait", "--for=create", "--timeout=60s", "node/"+node.Name)
		cluster.kubectl(t, "wait", "--for=condition=Ready", "--timeout=60s", "node/"+node.Name)
		cluster.awaitDevices(t, node)
	}
	cluster.kubectl(t, "wait", "--for=create", "--timeout=60s", "serviceaccount/default")
	cluster.logTime(t, "all nodes are Ready and have their devices")
	return cluster
}

// addNode creates a node and connects it to the control plane.
func (c *cluster) addNode(t *testing.T, number int) {
	t.Helper()
	name := nodeName(number)
	node := &node{
		cluster: c, Name: name, Number: number, Namespace: testlab.NewNamespace(t, name),
		Folder: filepath.Join(c.folder, name), processes: map[string]*process{},
	}
	c.nodes = append(c.nodes, node)
	own, control := node.management()
	testlab.Cable(t, c.control, name, node.Namespace, "mgmt0")
	c.control.IP(t, "address", "add", control.String()+"/30", "dev", name)
	c.control.IP(t, "route", "add", node.pods().String(), "via", own.String())
	node.Namespace.IP(t, "address", "add", own.String()+"/30", "dev", "mgmt0")
	node.Namespace.IP(t, "route", "add", "default", "via", control.String())
	node.Namespace.Run(t, "sysctl", "-qw", "net.ipv4.ip_forward=1")

	node.start(t, c.connectRails(t, node))
	c.keys.user(t, "node-"+name, "system:node:"+name, apiServer, "system:nodes")
	node.installPlugins(t)
	node.startContainers(t)
	node.startKubelet(t)
}

func (c *cluster) awaitDevices(t *testing.T, node *node) {
	t.Helper()
	awaitEvery(t, kubectlPause, "devices of "+node.Name, 30*time.Second, func() string {
		output := c.kubectl(t, "get", "node", node.Name, "-o", `jsonpath={.status.allocatable}`)
		for rail := range c.rails {
			if !strings.Contains(output, fmt.Sprintf(`"nvidia.com/mlnx_sriov_pf%d_vf":"8"`, rail+1)) {
				return output
			}
		}
		return ""
	})
}

// makeImages creates the pods' images from busybox.
func (c *cluster) makeImages(t *testing.T) {
	t.Helper()
	busybox := filepath.Join(c.tools, "bin/busybox")
	links := map[string]string{}
	for name := range strings.FieldsSeq(testlab.Run(t, busybox, "--list")) {
		if name != "busybox" {
			links["/bin/"+name] = "busybox"
		}
	}
	c.addImage(t, image{
		Name: pauseImage, Files: map[string]string{"/bin/busybox": busybox},
		Links: map[string]string{"/bin/sleep": "busybox"}, Command: []string{"/bin/sleep", "2147483647"},
	})
	c.addImage(t, image{Name: podImage, Files: map[string]string{"/bin/busybox": busybox}, Links: links})
}

// addImage adds an image for nodes that start later.
func (c *cluster) addImage(t *testing.T, image image) {
	t.Helper()
	archive := filepath.Join(c.folder, fmt.Sprintf("image%d.tar", len(c.images)))
	image.write(t, archive)
	c.images = append(c.images, archive)
}

// logTime logs the time since the start of the cluster with a name.
func (c *cluster) logTime(t *testing.T, name string) {
	t.Helper()
	t.Logf("%6.2f s  %s", time.Since(c.started).Seconds(), name)
}

func (c *cluster) path() string {
	return filepath.Join(c.tools, "bin") + ":/usr/sbin:/usr/bin:/sbin:/bin"
}

func (c *cluster) read(t *testing.T, key string) string {
	t.Helper()
	content, err := os.ReadFile(c.keys.path(key))
	check(t, err)
	return string(content)
}
