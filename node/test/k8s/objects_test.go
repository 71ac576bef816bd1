//go:build k8s

package k8s

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"railwright/node/testlab"
)

// object is a Kubernetes object, as parsed from its manifest.
type object map[string]any

// readObjects returns the objects of a manifest in deploy/.
func readObjects(t *testing.T, name string) []object {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(deployFolder, name))
	check(t, err)
	var found []object
	for text := range strings.SplitSeq(string(content), "\n---\n") {
		var item object
		check(t, yaml.Unmarshal([]byte(text), &item))
		found = append(found, item)
	}
	return found
}

// set sets a field by its path and creates missing parents.
func (o object) set(value any, path ...string) {
	at := map[string]any(o)
	for _, name := range path[:len(path)-1] {
		next, ok := at[name].(map[string]any)
		if !ok {
			next = map[string]any{}
			at[name] = next
		}
		at = next
	}
	at[path[len(path)-1]] = value
}

// container returns the container of a pod that has exactly one.
func (o object) container() object {
	return o["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)
}

func (o object) text(t *testing.T) string {
	t.Helper()
	content, err := json.Marshal(o)
	check(t, err)
	return string(content)
}

// networks applies the networks of an example to a namespace. It omits the annotation with the resource's name, which
// would make Multus pass a VF's PCI address to ovs-cni, and the plugin that moves the RDMA device, because there are no
// VFs here. The pods still request the resource.
func (c *cluster) networks(t *testing.T, example, namespace string) {
	t.Helper()
	for _, network := range readObjects(t, "examples/"+example+"/networks.yaml") {
		network.set(map[string]any{}, "metadata", "annotations")
		network.set(namespace, "metadata", "namespace")
		if spec, ok := network["spec"].(map[string]any); ok {
			config := spec["config"].(string)
			without := withoutRDMA.ReplaceAllString(config, "")
			if without == config {
				t.Fatalf("example %s must move the RDMA device", example)
			}
			spec["config"] = without
		}
		c.apply(t, network.text(t))
	}
}

var withoutRDMA = regexp.MustCompile(`\{\s*"type": "rdma"\s*\},\s*`)

// podSpec describes a pod like the one in deploy/examples/pod.yaml.
type podSpec struct {
	Namespace, Name, Node string
	// Networks replaces the example's networks if it is not empty.
	Networks string
	// GPUs requests the example's GPUs. Otherwise the pod requests none.
	GPUs bool
}

func (w podSpec) manifest(t *testing.T) string {
	t.Helper()
	return w.object(t).text(t)
}

func (w podSpec) object(t *testing.T) object {
	t.Helper()
	pod := readObjects(t, "examples/pod.yaml")[0]
	pod.set(w.Namespace, "metadata", "namespace")
	pod.set(w.Name, "metadata", "name")
	pod.set(1, "spec", "terminationGracePeriodSeconds")
	if w.Node != "" {
		pod.set(w.Node, "spec", "nodeSelector", "kubernetes.io/hostname")
	}
	if w.Networks != "" {
		pod.set(w.Networks, "metadata", "annotations", "k8s.v1.cni.cncf.io/networks")
	}
	pod.container().set(podImage, "image")
	pod.container().set("Never", "imagePullPolicy")
	if !w.GPUs {
		for _, bound := range []string{"requests", "limits"} {
			delete(pod.container()["resources"].(map[string]any)[bound].(map[string]any), "nvidia.com/gpu")
		}
	}
	return pod
}

// run starts pods and returns them once all are Ready.
func (c *cluster) run(t *testing.T, pods ...podSpec) []*pod {
	t.Helper()
	var manifests []string
	for _, spec := range pods {
		manifests = append(manifests, spec.manifest(t))
	}
	c.apply(t, manifests...)
	var found []*pod
	for _, spec := range pods {
		found = append(found, c.awaitReady(t, spec))
	}
	return found
}

func (c *cluster) awaitReady(t *testing.T, pod podSpec) *pod {
	t.Helper()
	output, err := c.tryKubectl("", "wait", "-n", pod.Namespace, "--for=condition=Ready", "--timeout=60s", "pod/"+pod.Name)
	if err != nil {
		t.Fatalf("%s: %s\n%s", pod.Name, output, c.explain())
	}
	return c.pod(t, pod.Namespace, pod.Name)
}

// remove deletes pods and returns once they are gone from the API server.
func (c *cluster) remove(t *testing.T, pods ...*pod) {
	t.Helper()
	for _, pod := range pods {
		c.kubectl(t, "delete", "pod", "-n", pod.Namespace, pod.Name, "--wait=false")
	}
	for _, pod := range pods {
		output, err := c.tryKubectl("", "wait", "--for=delete", "-n", pod.Namespace, "--timeout=40s", "pod/"+pod.Name)
		if err != nil {
			t.Fatalf("%s was not deleted: %s\n%s", pod, output, c.explain())
		}
	}
}

// kindsAreServed waits until the API server serves the custom resources. `kubectl wait` fails if a definition has no
// conditions yet.
func (c *cluster) kindsAreServed(t *testing.T, kinds ...string) {
	t.Helper()
	testlab.UntilRight(t, func() string {
		arguments := append([]string{"wait", "--for=condition=Established", "--timeout=30s"}, kinds...)
		if output, err := c.tryKubectl("", arguments...); err != nil {
			return output + err.Error()
		}
		return ""
	})
}

// namespace creates a namespace with the networks of an example.
func (c *cluster) namespace(t *testing.T, name, example string) {
	t.Helper()
	c.apply(t, object{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}.text(t))
	c.kubectl(t, "wait", "--for=create", "--timeout=20s", "-n", name, "serviceaccount/default")
	c.networks(t, example, name)
}
