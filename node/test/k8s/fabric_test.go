//go:build k8s

package k8s

import (
	"fmt"
	"net/netip"
	"os"
	"strings"
	"testing"

	"railwright/node/internal/announce/frrconfig"
	"railwright/node/testlab"
)

const (
	spineASN = 65100
	leafASN  = 65101
	nodeASN  = 4200000100
	// leafLimit is the leaf's maximum-prefix for a node.
	leafLimit = 250
	// jumboMTU is large enough for RoCE's largest packets.
	jumboMTU = "9000"
)

// rail is a rail of the fabric, as configured in deploy/configuration.yaml and deploy/frr.
type rail struct {
	Name, Bridge, Uplink string
	Table                int
	Prefixes             []netip.Prefix
}

var bothRails = []rail{
	{"rail0", "br-rail0", "pf1", 7700, prefixes("10.0.0.0/16", "fd00::/48")},
	{"rail1", "br-rail1", "pf2", 7701, prefixes("10.1.0.0/16", "fd00:0:1::/48")},
}

// leaf is the router of a rail, with a port to each node, named after the node, and one to the spine.
type leaf struct {
	Rail      rail
	Namespace *testlab.Namespace
	FRR       *testlab.FRR
}

// startFabric starts a leaf for each rail and the spine that connects them, with ports for the given number of nodes.
func (c *cluster) startFabric(t *testing.T, nodes int) {
	t.Helper()
	spine := testlab.NewNamespace(t, "spine")
	forward(t, spine)
	var spinePorts []string
	for number, rail := range c.rails {
		leaf := &leaf{Rail: rail, Namespace: testlab.NewNamespace(t, "leaf-"+rail.Name)}
		forward(t, leaf.Namespace)
		testlab.Cable(t, leaf.Namespace, "spine", spine, rail.Name)
		spinePorts = append(spinePorts, rail.Name)
		c.leaves = append(c.leaves, leaf)
		var ports []string
		for node := 1; node <= nodes; node++ {
			ports = append(ports, nodeName(node))
		}
		asn, id := leafASN+uint32(number), routerID(1+number)
		leaf.FRR = testlab.StartFRR(t, leaf.Namespace, testlab.FRR8, frrconfig.Leaf{
			ASN: asn, RouterID: id, Rail: rail.Name, Prefixes: rail.Prefixes, MaxPrefixes: leafLimit, Ports: ports,
		}.Text()+fabricSessions(asn, id, "spine"))
	}
	testlab.StartFRR(t, spine, testlab.FRR8, fabricSessions(spineASN, routerID(99), spinePorts...))
}

// connectRails connects a node to each leaf and starts Open vSwitch, with a bridge for each rail, and FRR. It returns
// the folders of their sockets, keyed by the path inside the node.
func (c *cluster) connectRails(t *testing.T, node *node) map[string]string {
	t.Helper()
	node.Switch = testlab.StartOpenVSwitch(t, node.Namespace)
	for number, rail := range c.rails {
		leaf := c.leaves[number].Namespace
		testlab.Cable(t, leaf, node.Name, node.Namespace, rail.Uplink)
		leaf.IP(t, "link", "set", node.Name, "mtu", jumboMTU)
		node.Namespace.IP(t, "link", "set", rail.Uplink, "mtu", jumboMTU)
		node.Switch.AddBridge(t, rail.Bridge, fmt.Sprintf("02:00:00:00:%02x:%02x", number+1, node.Number))
		node.Switch.AddPort(t, rail.Bridge, rail.Uplink)
		node.Namespace.IP(t, "link", "set", rail.Bridge, "mtu", jumboMTU)
	}
	example, err := os.ReadFile(deployFolder + "/frr/node-frr10-unnumbered.conf")
	check(t, err)
	configuration := strings.NewReplacer("4200000101", fmt.Sprint(nodeASN+node.Number), "10.255.1.1", routerID(100+node.Number).String())
	node.FRR = testlab.StartFRR(t, node.Namespace, testlab.FRR10, configuration.Replace(string(example)))
	// An installed FRR runs as its own user, and railwrightd must still be able to connect.
	const nobody = 65534
	check(t, os.Chown(node.FRR.Socket("bgpd"), nobody, nobody))
	check(t, os.Chmod(node.FRR.Socket("bgpd"), 0o770))
	return map[string]string{"/run/openvswitch": node.Switch.Folder, "/run/frr": node.FRR.Folder}
}

// fabricSessions returns the configuration of the sessions between leaves and spine, which announce all routes.
func fabricSessions(asn uint32, routerID netip.Addr, ports ...string) string {
	var text strings.Builder
	fmt.Fprintf(&text, "route-map fabric permit 10\nexit\nrouter bgp %d\n bgp router-id %s\n no bgp default ipv4-unicast\n",
		asn, routerID)
	for _, port := range ports {
		fmt.Fprintf(&text, " neighbor %s interface remote-as external\n neighbor %s advertisement-interval 0\n"+
			" neighbor %s timers connect 1\n", port, port, port)
	}
	for _, family := range []string{"ipv4", "ipv6"} {
		fmt.Fprintf(&text, " address-family %s unicast\n", family)
		for _, port := range ports {
			fmt.Fprintf(&text, "  neighbor %s activate\n  neighbor %s route-map fabric in\n"+
				"  neighbor %s route-map fabric out\n", port, port, port)
		}
		text.WriteString(" exit-address-family\n")
	}
	return text.String() + "exit\n"
}

// hostRoutes returns the node that each host route of the leaf to a pod points to.
func (l *leaf) hostRoutes(t *testing.T) map[netip.Addr]string {
	t.Helper()
	found := map[netip.Addr]string{}
	for _, family := range []string{"-4", "-6"} {
		for line := range strings.Lines(l.Namespace.IP(t, family, "route", "show", "proto", "bgp")) {
			fields := strings.Fields(line)
			address, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimSuffix(fields[0], "/32"), "/128"))
			if err != nil {
				continue
			}
			for i, word := range fields[:len(fields)-1] {
				if word == "dev" {
					found[address] = fields[i+1]
				}
			}
		}
	}
	return found
}

func forward(t *testing.T, namespace *testlab.Namespace) {
	t.Helper()
	namespace.Run(t, "sysctl", "-qw", "net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1")
}

func prefixes(texts ...string) []netip.Prefix {
	var found []netip.Prefix
	for _, text := range texts {
		found = append(found, netip.MustParsePrefix(text))
	}
	return found
}

func routerID(number int) netip.Addr { return netip.AddrFrom4([4]byte{192, 0, 2, byte(number)}) }

func nodeName(number int) string { return fmt.Sprintf("node%d", number) }
