//go:build k8s

package k8s

import (
	"encoding/json"
	"strings"
	"testing"
)

// removal removes railwrightd as deploy/README.md describes and checks that nothing is left.
func (c *cluster) removal(t *testing.T) {
	c.kubectl(t, "delete", "--timeout=40s", "-n", "railwright", "daemonset/railwrightd")
	c.kubectl(t, "delete", "--timeout=40s", "-f", deployFolder+"/access.yaml")
	names := strings.Fields(c.kubectl(t, "get", "nodeaddresses", "-o", "name"))
	c.kubectl(t, append([]string{"patch", "--type=merge", "-p", `{"metadata": {"finalizers": null}}`}, names...)...)
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

// ownNodeOnly checks that the daemon's token of a node can write that node's addresses, but neither write other nodes'
// addresses nor read secrets.
func (c *cluster) ownNodeOnly(t *testing.T) {
	var listed struct{ Items []object }
	check(t, json.Unmarshal([]byte(c.kubectl(t, "get", "nodeaddresses", "-o", "json")), &listed))
	if len(listed.Items) != len(c.nodes) {
		t.Fatalf("there are %d NodeAddresses for %d nodes", len(listed.Items), len(c.nodes))
	}
	for _, item := range listed.Items {
		owner := item["spec"].(map[string]any)["node"].(string)
		name := item["metadata"].(map[string]any)["name"].(string)
		item.set("yes", "metadata", "labels", "tried")
		for _, daemon := range c.nodes {
			output, err := c.tryKubectl(item.text(t), "replace", "--dry-run=server", "-f", "-", daemonAccount,
				"--as-user-extra=authentication.kubernetes.io/node-name="+daemon.Name)
			switch allowed := daemon.Name == owner; {
			case allowed && err != nil:
				t.Errorf("the daemon of %s may not write the addresses of its own node: %s", daemon.Name, output)
			case !allowed && err == nil:
				t.Errorf("the daemon of %s may write the addresses of %s", daemon.Name, owner)
			case !allowed && !strings.Contains(output, "of its own node, not those of"):
				t.Errorf("the daemon of %s is refused for another reason: %s", daemon.Name, output)
			}
		}
		output, err := c.tryKubectl("", "delete", "nodeaddresses", name, "--dry-run=server")
		if err == nil || !strings.Contains(output, "garbage-collected with their Node") {
			t.Errorf("an administrator may delete the addresses of a node that runs: %s", output)
		}
	}
	for _, question := range [][]string{
		{"get", "secrets", "-A"}, {"list", "pods", "-A"}, {"create", "pods", "-A"}, {"update", "nodes"}, {"update", "tenants"},
		{"create", "tenantpeerings"}, {"delete", "nodeaddresses"},
	} {
		output, _ := c.tryKubectl("", append([]string{"auth", "can-i", daemonAccount}, question...)...)
		if !strings.HasPrefix(output, "no") {
			t.Errorf("railwrightd's permission to %s is %s", strings.Join(question, " "), output)
		}
	}
}
