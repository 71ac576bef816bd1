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

// object of Kubernetes, as its manifest has it.
type object map[string]any

// readObjects of a manifest in deploy/.
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

// set a field by its path; folders on the way are made.
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

// container of a pod that has one.
func (o object) container() object {
	return o["spec"].(map[string]any)["containers"].([]any)[0].(map[string]any)
}

func (o object) text(t *testing.T) string {
	t.Helper()
	content, err := json.Marshal(o)
	check(t, err)
	return string(content)
}

// networks gives a namespace the networks of an example. The annotation with the resource's name is left out: with it
// Multus hands the VF's PCI address to ovs-cni, and there is no VF here. The pods ask for the resource all the same. For
// want of a VF nothing moves its RDMA device either.
func (c *cluster) networks(t *testing.T, example, namespace string) {
	t.Helper()
	for _, network := range readObjects(t, "examples/"+example+"/networks.yaml") {
		network.set(map[string]any{}, "metadata", "annotations")
		network.set(namespace, "metadata", "namespace")
		if spec, ok := network["spec"].(map[string]any); ok {
			config := spec["config"].(string)
			without := withoutRDMA.ReplaceAllString(config, "")
			if without == config {
				t.Fatalf("the example %s moves no RDMA device", example)
			}
			spec["config"] = without
		}
		c.apply(t, network.text(t))
	}
}

var withoutRDMA = regexp.MustCompile(`\{\s*"type": "rdma"\s*\},\s*`)

// podSpec is a pod like that of deploy/examples/pod.yaml.
type podSpec struct {
	Namespace, Name, Node string
	// Networks instead of the example's.
	Networks string
	// GPUs: as many as the example asks for, instead of none.
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

// run pods and give them once all are Ready.
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

// remove pods; it returns when they are gone from the API server.
func (c *cluster) remove(t *testing.T, pods ...*pod) {
	t.Helper()
	for _, pod := range pods {
		c.kubectl(t, "delete", "pod", "-n", pod.Namespace, pod.Name, "--wait=false")
	}
	for _, pod := range pods {
		output, err := c.tryKubectl("", "wait", "--for=delete", "-n", pod.Namespace, "--timeout=40s", "pod/"+pod.Name)
		if err != nil {
			t.Fatalf("%s is still there: %s\n%s", pod, output, c.explain())
		}
	}
}

// kindsAreServed waits until the API server serves definitions. kubectl itself gives up where one has no conditions yet.
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

// namespace with the networks of an example.
func (c *cluster) namespace(t *testing.T, name, example string) {
	t.Helper()
	c.apply(t, object{"apiVersion": "v1", "kind": "Namespace", "metadata": map[string]any{"name": name}}.text(t))
	c.kubectl(t, "wait", "--for=create", "--timeout=20s", "-n", name, "serviceaccount/default")
	c.networks(t, example, name)
}
