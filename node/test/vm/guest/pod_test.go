//go:build vmguest

package guest

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"railwright/node/testlab"
)

const podInterface = "net1"

// pod is a pod with one VF.
type pod struct {
	*testlab.Namespace
	rail      *rail
	vf        int
	namespace string
	networks  string
	addresses []netip.Addr
}

// pluginSettings are settings of our plugin in addition to those of every pod's network.
type pluginSettings map[string]any

// newPod creates a pod without an interface. Its network configuration names the VF, as Multus adds the one that the
// device plugin chose.
func (n *node) newPod(t *testing.T, rail *rail, vf int, namespace string, beside ...pluginSettings) *pod {
	t.Helper()
	made := &pod{Namespace: testlab.NewNamespace(t, "pod"), rail: rail, vf: vf, namespace: namespace}
	made.TakeAddressesAtOnce(t)
	made.networks = filepath.Join("/tmp/net.d", made.Name)
	if err := os.MkdirAll(made.networks, 0o755); err != nil {
		t.Fatal(err)
	}
	device := rail.vfs[vf]
	own := pluginSettings{
		"type": "railwright-cni", "deviceID": device, "mtu": 4200, "stateDir": filepath.Join(n.state, "railwright"),
		"routes": []map[string]string{{"dst": "10.0.0.0/8"}, {"dst": "fd00::/16"}},
		// The guest is emulated, and the host may be busy.
		"connectTimeoutSeconds": 20, "timeoutSeconds": 60,
	}
	for _, more := range beside {
		maps.Copy(own, more)
	}
	text, err := json.Marshal(map[string]any{"cniVersion": "1.0.0", "name": rail.name(), "plugins": []pluginSettings{
		{
			"type": "ovs", "bridge": rail.bridge(), "deviceID": device, "interface_type": "system", "mtu": 4200,
			"link_state_check_interval": 10, "link_state_check_retries": 300,
			"ipam": map[string]any{
				"type": "host-local", "dataDir": filepath.Join(n.state, "host-local"),
				"ranges": [][]map[string]string{
					{{"subnet": rail.prefix()}}, {{"subnet": rail.prefix6(), "gateway": rail.gateway6()}},
				},
			},
		},
		own,
	}})
	if err != nil {
		t.Fatal(err)
	}
	write(t, filepath.Join(made.networks, rail.name()+".conflist"), string(text))
	return made
}

// cnitool runs a verb for the pod, as a runtime would.
func (p *pod) cnitool(verb string) (string, error) {
	command := exec.Command(shared+"bin/cnitool", verb, p.rail.name(), p.Path())
	command.Env = append(os.Environ(), "CNI_PATH="+shared+"bin", "NETCONFPATH="+p.networks, "CNI_IFNAME="+podInterface,
		fmt.Sprintf("CNI_ARGS=IgnoreUnknown=1;K8S_POD_NAMESPACE=%s;K8S_POD_NAME=%s;K8S_POD_UID=uid-%s", p.namespace,
			p.Name, p.Name))
	var complaints strings.Builder
	command.Stderr = &complaints
	told, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("cnitool %s: %w: %s%s", verb, err, told, complaints.String())
	}
	return string(told), nil
}

func (p *pod) must(t *testing.T, verb string) string {
	t.Helper()
	told, err := p.cnitool(verb)
	if err != nil {
		t.Fatal(err)
	}
	return told
}

func deletePods(t *testing.T, pods ...*pod) {
	t.Helper()
	for _, pod := range pods {
		pod.must(t, "del")
	}
}

// addPod attaches a new pod.
func (n *node) addPod(t *testing.T, rail *rail, vf int, namespace string, beside ...pluginSettings) *pod {
	t.Helper()
	made := n.newPod(t, rail, vf, namespace, beside...)
	made.add(t)
	return made
}

func (p *pod) add(t *testing.T) {
	t.Helper()
	var result struct {
		IPs []struct{ Address netip.Prefix }
	}
	told := p.must(t, "add")
	if err := json.Unmarshal([]byte(told), &result); err != nil || len(result.IPs) != 2 {
		t.Fatalf("result must have two addresses: %v\n%s", err, told)
	}
	p.addresses = nil
	for _, one := range result.IPs {
		p.addresses = append(p.addresses, one.Address.Addr())
	}
}

// reaches pings an address and reports whether all pings are answered. It returns ping's output as well.
func (p *pod) reaches(address netip.Addr) (told string, all bool) {
	told, err := p.Try("ping", "-c", "5", "-i", "0.2", "-W", "3", address.String())
	return told, err == nil && strings.Contains(told, " 0% packet loss")
}

func (p *pod) mustReach(t *testing.T, other *pod) {
	t.Helper()
	for _, address := range other.addresses {
		if told, all := p.reaches(address); !all {
			t.Errorf("%s of %s does not reach %s of %s:\n%s", p.Name, p.rail.name(), address, other.rail.name(), told)
		}
	}
}

func (p *pod) mustNotReach(t *testing.T, other *pod) {
	t.Helper()
	for _, address := range other.addresses {
		told, _ := p.Try("ping", "-c", "5", "-i", "0.2", "-W", "1", address.String())
		if !strings.Contains(told, " 0 received, 100% packet loss") {
			t.Errorf("%s reaches %s of another tenant, or ping failed:\n%s", p.Name, address, told)
		}
	}
}
