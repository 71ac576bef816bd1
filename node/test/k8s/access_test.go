//go:build k8s

package k8s

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"railwright/node/testlab"
)

// removal removes railwrightd as deploy/README.md describes and checks that nothing is left.
func (c *cluster) removal(t *testing.T) {
	c.kubectl(t, "delete", "--timeout=40s", "-n", "railwright", "daemonset/railwrightd", "deployment/railwright-sweeper")
	c.kubectl(t, "delete", "--timeout=40s", "-f", deployFolder+"/access.yaml")
	c.kubectl(t, "delete", "--timeout=60s", "namespaces", "-l", "app.kubernetes.io/managed-by=railwrightd")
	c.kubectl(t, "delete", "--timeout=60s", "--ignore-not-found", "-k", deployFolder)
	left := c.kubectl(t, "get", "crd,clusterrole,clusterrolebinding,validatingadmissionpolicy,namespace", "-o", "name")
	if strings.Contains(left, "railwright") {
		t.Errorf("traces left after the removal:\n%s", left)
	}
}

// operatorsNetworks checks that an administrator of a namespace cannot write networks there until the cluster's
// operators permit it.
func (c *cluster) operatorsNetworks(t *testing.T) {
	example := deployFolder + "/examples/whereabouts/networks.yaml"
	try := func() (string, error) {
		return c.tryKubectl("", "apply", "--dry-run=server", "-n", "tenant1", "-f", example, "--as=tenant1-admin")
	}
	c.kubectl(t, "create", "role", "-n", "tenant1", "everything", "--verb=*", "--resource=network-attachment-definitions.k8s.cni.cncf.io")
	c.kubectl(t, "create", "rolebinding", "-n", "tenant1", "everything", "--role=everything", "--user=tenant1-admin")
	if output, err := try(); err == nil || !strings.Contains(output, "railwright-network-writer") {
		t.Errorf("a tenant can write networks: %s", output)
	}
	c.kubectl(t, "create", "clusterrolebinding", "tried", "--clusterrole=railwright-network-writer", "--user=tenant1-admin")
	if output, err := try(); err != nil {
		t.Errorf("a user permitted by the operators cannot write networks: %s", output)
	}
	c.kubectl(t, "delete", "clusterrolebinding/tried")
	c.kubectl(t, "delete", "-n", "tenant1", "rolebinding/everything", "role/everything")
}

const daemonAccount = "--as=system:serviceaccount:railwright:railwrightd"

// ownNodeOnly checks that the daemon's token of a node can write what that node holds, but neither write what other nodes hold
// nor read secrets, and that an administrator cannot free what a machine holds that may run.
func (c *cluster) ownNodeOnly(t *testing.T) {
	var listed struct{ Items []object }
	check(t, json.Unmarshal([]byte(c.kubectl(t, "get", "railnodes", "-o", "json")), &listed))
	if len(listed.Items) != len(c.nodes) {
		t.Fatalf("there are %d RailNodes for %d nodes", len(listed.Items), len(c.nodes))
	}
	for _, item := range listed.Items {
		owner := item["spec"].(map[string]any)["node"].(string)
		name := item["metadata"].(map[string]any)["name"].(string)
		for _, daemon := range c.nodes {
			output, err := c.tryKubectl("", "label", "--dry-run=server", "railnode", name, "tried=yes", daemonAccount,
				"--as-user-extra=authentication.kubernetes.io/node-name="+daemon.Name)
			switch allowed := daemon.Name == owner; {
			case allowed && err != nil:
				t.Errorf("the daemon of %s may not write the RailNode of its own node: %s", daemon.Name, output)
			case !allowed && err == nil:
				t.Errorf("the daemon of %s may write the RailNode of %s", daemon.Name, owner)
			case !allowed && !strings.Contains(output, "objects of its own node"):
				t.Errorf("the daemon of %s is refused for another reason: %s", daemon.Name, output)
			}
		}
		output, err := c.tryKubectl("", "delete", "railnode", name, "--dry-run=server")
		if err == nil || !strings.Contains(output, "annotate its RailNode") {
			t.Errorf("an administrator may delete the RailNode of a machine that runs: %s", output)
		}
	}
	for _, question := range [][]string{
		{"get", "secrets", "-A"}, {"list", "pods", "-A"}, {"create", "pods", "-A"}, {"update", "nodes"}, {"update", "tenants"},
		{"create", "tenantpeerings"}, {"patch", "railepochs"}, {"list", "namespaces"}, {"delete", "namespaces"},
	} {
		output, _ := c.tryKubectl("", append([]string{"auth", "can-i", daemonAccount}, question...)...)
		if !strings.HasPrefix(output, "no") {
			t.Errorf("railwrightd's permission to %s is %s", strings.Join(question, " "), output)
		}
	}
}

// remedies tries, as the cluster's administrator, what deploy/README.md advises after a restore of etcd and for members that
// were lost, while pods run.
func (c *cluster) remedies(t *testing.T) {
	pods := c.run(t,
		podSpec{Namespace: "tenant1", Name: "stays-1", Node: c.nodes[0].Name},
		podSpec{Namespace: "tenant1", Name: "stays-2", Node: c.nodes[1].Name})
	defer func() { c.remove(t, pods...) }()
	id := func() string { return c.kubectl(t, "get", "railepoch", "epoch", "-o", "jsonpath={.spec.id}") }
	before := id()
	c.kubectl(t, "-n", "railwright", "exec", "deploy/railwright-sweeper", "--", "railwrightd", "epoch", "none")
	if after := id(); after == before {
		t.Errorf("the epoch is still %s", after)
	}
	pods = append(pods, c.run(t, podSpec{Namespace: "tenant1", Name: "later", Node: c.nodes[0].Name})...)
	for _, item := range strings.Fields(c.kubectl(t, "get", "railnodes", "-o", "jsonpath={.items[*].spec.epoch}")) {
		if item != id() {
			t.Errorf("a node is in epoch %s instead of %s", item, id())
		}
	}
	c.forgets(t)
	c.kubectl(t, "delete", "--timeout=60s", "namespaces", "-l", "app.kubernetes.io/managed-by=railwrightd")
	awaitEvery(t, kubectlPause, "the members of both nodes", 60*time.Second, func() string {
		output, err := c.tryKubectl("", "get", "tenantmembers", "-A", "-o", "jsonpath={range .items[*]}{.metadata.name}{\"\\n\"}{end}")
		for _, node := range c.nodes {
			if err != nil || !strings.Contains(output, node.Name+".") {
				return output
			}
		}
		return ""
	})
	await(t, "the nodes to hear of them", 30*time.Second, func() string {
		passed := exchange(t, pods, insistent, func(from, to *pod) bool { return from != to })
		if passed.Paths == 0 || passed.Arrived < passed.Sent {
			return fmt.Sprintf("%d of %d packets arrived", passed.Arrived, passed.Sent)
		}
		return ""
	})
	c.checkIsolation(t, pods)
}

// forgets frees what a machine holds that is off, with the command that railwrightd names if it holds an address.
func (c *cluster) forgets(t *testing.T) {
	t.Helper()
	const version, name = "network.railwright.dev/v1alpha1", "gone.0000000a"
	for _, made := range []object{
		{"apiVersion": version, "kind": "RailNode", "metadata": map[string]any{"name": name}, "spec": map[string]any{"node": "gone", "instance": "0000000a"}},
		{"apiVersion": version, "kind": "AddressClaim", "metadata": map[string]any{"name": "10-9-9-9"}, "spec": map[string]any{
			"address": "10.9.9.9", "tenant": "ns:tenant1@uid", "node": "gone", "instance": "0000000a"}},
	} {
		output, err := c.tryKubectl(made.text(t), "create", "-f", "-", daemonAccount, "--as-user-extra=authentication.kubernetes.io/node-name=gone")
		if err != nil {
			t.Fatal(output)
		}
	}
	output := c.kubectl(t, "-n", "railwright", "exec", "deploy/railwright-sweeper", "--", "railwrightd", "forget", "gone")
	if !strings.Contains(output, "1 machines") {
		t.Errorf("forget: %s", output)
	}
	if left := c.kubectl(t, "get", "railnode/"+name, "addressclaim/10-9-9-9", "--ignore-not-found", "-o", "name"); left != "" {
		t.Errorf("left: %s", left)
	}
}

// earlier is what a version with NodeAddresses leaves in the API server: its definition, an object that a finalizer keeps, and
// the policy by which nobody may delete it.
const earlier = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: nodeaddresses.network.railwright.dev}
spec:
  group: network.railwright.dev
  scope: Cluster
  names: {kind: NodeAddresses, listKind: NodeAddressesList, plural: nodeaddresses, singular: nodeaddresses}
  versions:
  - name: v1alpha1
    served: true
    storage: true
    schema: {openAPIV3Schema: {type: object, x-kubernetes-preserve-unknown-fields: true}}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: nodeaddresses-go-with-their-node}
spec:
  failurePolicy: Fail
  matchConstraints:
    resourceRules:
    - {apiGroups: [network.railwright.dev], apiVersions: ["*"], resources: [nodeaddresses], operations: [DELETE]}
  validations:
  - {expression: "false", reason: Forbidden}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: nodeaddresses-go-with-their-node}
spec: {policyName: nodeaddresses-go-with-their-node, validationActions: [Deny]}
`

// drained upgrades from a version with NodeAddresses by the commands of deploy/README.md. Nodes that are drained hold nothing.
func (c *cluster) drained(t *testing.T) {
	before := c.settled(t)
	start := func() []*pod {
		return c.run(t,
			podSpec{Namespace: "tenant1", Name: "first-1", Node: c.nodes[0].Name}, podSpec{Namespace: "tenant1", Name: "first-2", Node: c.nodes[1].Name},
			podSpec{Namespace: "tenant2", Name: "second-1", Node: c.nodes[0].Name}, podSpec{Namespace: "tenant2", Name: "second-2", Node: c.nodes[1].Name})
	}
	start()
	c.apply(t, earlier)
	c.kindsAreServed(t, "crd/nodeaddresses.network.railwright.dev")
	c.apply(t, object{
		"apiVersion": "network.railwright.dev/v1alpha1", "kind": "NodeAddresses",
		"metadata": map[string]any{"name": "one.00000001", "finalizers": []string{"network.railwright.dev/let-go"}}, "spec": map[string]any{},
	}.text(t))
	await(t, "the policy of the earlier version", 20*time.Second, func() string {
		output, err := c.tryKubectl("", "delete", "--dry-run=server", "nodeaddresses", "one.00000001")
		if err == nil {
			return "a deletion is allowed: " + output
		}
		return ""
	})
	folder, err := filepath.Abs(deployFolder)
	check(t, err)
	text, err := os.ReadFile(filepath.Join(folder, "README.md"))
	check(t, err)
	_, section, found := strings.Cut(string(text), "Before 0.1.0 the directory had NodeAddresses")
	section, _, end := strings.Cut(section, "\n## ")
	if !found || !end {
		t.Fatal("deploy/README.md has no commands for the upgrade")
	}
	tools := t.TempDir()
	check(t, os.WriteFile(filepath.Join(tools, "kubectl"), fmt.Appendf(nil, "#!/bin/sh\nexec %s --kubeconfig=%s \"$@\"\n",
		filepath.Join(c.tools, "bin/kubectl"), c.keys.path("admin.kubeconfig")), 0o700))
	// The pods here have no controller, which drain refuses to delete.
	words := strings.NewReplacer("NODE...", c.nodes[0].Name+" "+c.nodes[1].Name, "deploy/", folder, "drain ", "drain --force --timeout=120s ")
	for line := range strings.Lines(section) {
		command, isCommand := strings.CutPrefix(line, "    kubectl ")
		if !isCommand {
			continue
		}
		command, _, _ = strings.Cut("kubectl "+words.Replace(command), "    #")
		shell := c.control.Command("sh", "-c", command)
		shell.Env = append(os.Environ(), "PATH="+tools+":"+os.Getenv("PATH"))
		output, err := shell.CombinedOutput()
		if err != nil {
			t.Fatalf("%s: %v\n%s\n%s", command, err, output, c.explain())
		}
		if strings.HasPrefix(command, "kubectl drain") {
			testlab.UntilRight(t, func() string { return c.kubectl(t, "get", "addressclaims", "-o", "name") })
		}
	}
	c.rollOut(t)
	c.kubectl(t, "-n", "railwright", "rollout", "status", "--timeout=60s", "deployment/railwright-sweeper")
	if output, err := c.tryKubectl("", "get", "nodeaddresses"); err == nil {
		t.Errorf("NodeAddresses are still there: %s", output)
	}
	pods := start()
	c.checkIsolation(t, pods)
	c.remove(t, pods...)
	// The drain moved pods of others from node to node, with their links and the files of their plugins and runtime.
	own := func(traces []string) []string {
		return slices.DeleteFunc(slices.Clone(traces), func(line string) bool {
			return strings.Contains(line, ": link ") || strings.Contains(line, ": file ") && !strings.Contains(line, "railwright")
		})
	}
	awaitEvery(t, kubectlPause, "expected traces", tracesGo, func() string { return difference(own(before), own(c.traces(t))) })
}
