//go:build k8s

package k8s

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
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
	c.checkIsolation(t, pods)
}
