package main

import (
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	"railwright/node/testlab"
	"railwright/node/testlab/railnode"
)

const deployFolder = "../../deploy/"

// deployedConfig returns the configuration of deploy/.
func deployedConfig(t *testing.T) string {
	t.Helper()
	var manifest struct {
		Data map[string]string `json:"data"`
	}
	content, err := os.ReadFile(deployFolder + "configuration.yaml")
	if err == nil {
		err = yaml.Unmarshal(content, &manifest)
	}
	if err != nil {
		t.Fatal(err)
	}
	return manifest.Data["railwrightd.yaml"]
}

// frrConfigOf runs the program and returns FRR's configuration.
func frrConfigOf(t *testing.T, configuration string, options ...string) (stdout, stderr string, code int) {
	t.Helper()
	file := t.TempDir() + "/railwrightd.yaml"
	if err := os.WriteFile(file, []byte(configuration), 0o600); err != nil {
		t.Fatal(err)
	}
	arguments := append([]string{"frr-config", "--config", file}, options...)
	return outputs(t, exec.Command(railnode.Daemon(t), arguments...))
}

var numberedLeaves = strings.NewReplacer("leaf: unnumbered           #", "leaf: 192.0.2.0 #", "leaf: unnumbered\n", "leaf: 192.0.2.2\n")

func TestDeployedConfigurationYieldsTheFRRExamples(t *testing.T) {
	const vty = "backend: vty\n  asn: 4200000101\n#"
	for example, configuration := range map[string]string{
		"node-frr10-unnumbered.conf": deployedConfig(t),
		"node-frr10-numbered.conf":   numberedLeaves.Replace(deployedConfig(t)),
		"node-frr8-unnumbered.conf":  strings.Replace(deployedConfig(t), "backend: kernel-table", vty, 1),
		"node-frr8-numbered.conf":    numberedLeaves.Replace(strings.Replace(deployedConfig(t), "backend: kernel-table", vty, 1)),
	} {
		want, err := os.ReadFile(deployFolder + "frr/" + example)
		if err != nil {
			t.Fatal(err)
		}
		stdout, stderr, code := frrConfigOf(t, configuration, "--router-id", "10.255.1.1", "--asn", "4200000101")
		if code != exitOK || stderr != "" || stdout != string(want) {
			t.Errorf("%s: status %d, %q\n%s", example, code, stderr, stdout)
		}
	}
}

func TestFRRConfigNamesMissingSettings(t *testing.T) {
	vty := strings.Replace(deployedConfig(t), "backend: kernel-table", "backend: vty\n  asn: 65001\n#", 1)
	for _, test := range []struct {
		configuration string
		options       []string
		want          string
	}{
		{deployedConfig(t), []string{"--asn", "65001"}, `--router-id must be an IPv4 address`},
		{deployedConfig(t), []string{"--asn", "65001", "--router-id", "fd00::1"}, `got "fd00::1"`},
		{deployedConfig(t), []string{"--asn", "65001", "--router-id", "0.0.0.0"}, `got "0.0.0.0"`},
		{deployedConfig(t), []string{"--router-id", "10.255.1.1"}, "AS number is required; set --asn N"},
		{deployedConfig(t), []string{"--router-id", "10.255.1.1", "--asn", "4294967296"}, `--asn must be 1 to 4294967295, got "4294967296"`},
		{vty, []string{"--router-id", "10.255.1.1", "--asn", "65002"}, "--asn must equal frr.asn 65001 of the configuration, got 65002"},
		{"rails: []\n", []string{"--router-id", "10.255.1.1", "--asn", "65002"}, "rails: must have 1 to 64 entries"},
	} {
		stdout, stderr, code := frrConfigOf(t, test.configuration, test.options...)
		if code != exitMisuse || stdout != "" || !strings.Contains(stderr, test.want) {
			t.Errorf("%v: status %d, %q %q", test.options, code, stdout, stderr)
		}
	}
}

func TestBFDOption(t *testing.T) {
	plain, _, _ := frrConfigOf(t, deployedConfig(t), "--router-id", "10.255.1.1", "--asn", "65001")
	stdout, _, code := frrConfigOf(t, deployedConfig(t), "--router-id", "10.255.1.1", "--asn", "65001", "--bfd")
	for _, part := range []string{"bgpd=yes, bfdd=yes\n", "\n neighbor LEAVES bfd\n"} {
		if code != exitOK || !strings.Contains(stdout, part) || strings.Contains(plain, part) {
			t.Errorf("%q must be printed with --bfd only: status %d", part, code)
		}
	}
}

// twoKinds is a node with an IPv4 rail and a dual-stack rail, whose FRR gets the printed configuration.
const twoKinds = `
node: node-1
rails:
- {name: rail0, bridge: br-rail0, uplink: p0, leaf: 192.0.2.0, table: 7700, prefixes: [10.0.0.0/16, 10.8.0.0/24]}
- {name: rail1, bridge: br-rail1, uplink: p1, leaf: unnumbered, table: 7701, prefixes: [10.1.0.0/16, "fd00:0:1::/48"]}
tenants: {kind: local}
`

// permissive is the configuration of a leaf that accepts everything.
const permissive = `route-map all permit 10
exit
interface %[1]s
 no ipv6 nd suppress-ra
 ipv6 nd ra-interval 1
exit
router bgp 65100
 bgp router-id 10.255.0.%[2]d
 no bgp default ipv4-unicast
 neighbor %[3]s remote-as external
 neighbor %[1]s timers connect 1
 neighbor %[1]s capability extended-nexthop
 address-family ipv4 unicast
  neighbor %[1]s activate
  neighbor %[1]s route-map all in
 exit-address-family
 address-family ipv6 unicast
  neighbor %[1]s activate
  neighbor %[1]s route-map all in
 exit-address-family
exit
`

// TestConfiguredFRRAnnouncesNothingWrong adds wrong routes to the rail's table or to bgpd, with leaves that would
// accept everything.
func TestConfiguredFRRAnnouncesNothingWrong(t *testing.T) {
	for _, release := range []railnode.Release{railnode.NewFRR, railnode.OldFRR} {
		t.Run(release.String(), func(t *testing.T) {
			t.Parallel()
			configuration := twoKinds + fmt.Sprintf("frr: {backend: %s, asn: 65001}\n", release.Backend)
			text, stderr, code := frrConfigOf(t, configuration, "--router-id", "10.255.1.1")
			if code != exitOK {
				t.Fatal(stderr)
			}
			node := testlab.NewNamespace(t, "node")
			node.TakeAddressesAtOnce(t)
			var leaves []*testlab.FRR
			for rail, leaf := range []string{"192.0.2.1", "swp1 interface"} {
				namespace := testlab.NewNamespace(t, "leaf")
				namespace.TakeAddressesAtOnce(t)
				testlab.Cable(t, namespace, "swp1", node, fmt.Sprintf("br-rail%d", rail))
				if rail == 0 {
					namespace.IP(t, "addr", "add", "192.0.2.0/31", "dev", "swp1")
					node.IP(t, "addr", "add", "192.0.2.1/31", "dev", "br-rail0")
				}
				known, _, _ := strings.Cut(leaf, " ")
				config := strings.ReplaceAll(fmt.Sprintf(permissive, known, rail+1, leaf), "interface 192.0.2.1\n", "interface swp1\n")
				leaves = append(leaves, testlab.StartFRR(t, namespace, release.Version, config))
			}
			frr := testlab.StartFRR(t, node, release.Version, text)
			checkAccepted(t, text, frr.Show(t, "show running-config"))
			right := [][]string{{"10.0.0.1/32", "10.8.0.255/32"}, {"10.1.0.1/32", "fd00:0:1::1/128"}}
			for rail := range leaves {
				for _, prefix := range append([]string{
					"0.0.0.0/0", "::/0", "10.0.5.0/24", "10.1.5.0/24", "10.8.0.0/24", "10.8.1.1/32", "192.0.2.77/32", "fd00:0:1::/64",
					"2001:db8::7/128", fmt.Sprintf("10.%d.0.66/32", 1-rail), "fd00::66/128",
				}, right[rail]...) {
					inject(t, node, frr, release, rail, prefix)
				}
			}
			for rail, leaf := range leaves {
				// The right routes come last: a leaf that has them has received everything. A session that opens twice
				// withdraws all routes for a moment, so only unexpected routes count as failures.
				testlab.Eventually(t, fmt.Sprintf("routes of rail%d at its leaf", rail), func() bool {
					all := receivedPrefixes(t, leaf)
					for _, prefix := range all {
						if !slices.Contains(right[rail], prefix) {
							t.Fatalf("leaf of rail%d has %v, want %v\n%s", rail, all, right[rail], frr.Show(t, "show running-config"))
						}
					}
					return slices.Equal(all, right[rail])
				})
			}
		})
	}
}

// inject adds a route of a rail as the daemon would, without its checks.
func inject(t *testing.T, node *testlab.Namespace, frr *testlab.FRR, release railnode.Release, rail int, prefix string) {
	t.Helper()
	if release == railnode.NewFRR {
		node.IP(t, "route", "replace", "blackhole", prefix, "table", fmt.Sprint(7700+rail), "proto", "114")
		return
	}
	family := "ipv4"
	if strings.Contains(prefix, ":") {
		family = "ipv6"
	}
	frr.Show(t, "configure terminal", "router bgp 65001", "address-family "+family+" unicast",
		fmt.Sprintf("network %s route-map railwright-rail%d", prefix, rail))
}

// receivedPrefixes returns the prefixes that a leaf received from its node.
func receivedPrefixes(t *testing.T, leaf *testlab.FRR) []string {
	t.Helper()
	var found []string
	for _, family := range []string{"ipv4", "ipv6"} {
		for line := range strings.Lines(leaf.Show(t, "show bgp "+family+" unicast")) {
			fields := strings.Fields(line)
			if len(fields) < 2 || !strings.HasPrefix(fields[0], "*") {
				continue
			}
			// A prefix can follow its marks without a space.
			prefix := strings.TrimLeft(fields[0], "*>=")
			if prefix == "" {
				prefix = fields[1]
			}
			if strings.Contains(prefix, "/") {
				found = append(found, prefix)
			}
		}
	}
	return found
}

// checkAccepted checks that FRR accepted the configuration, except for lines that it does not show or writes
// differently.
func checkAccepted(t *testing.T, config, running string) {
	t.Helper()
	silent := []string{"bgp ebgp-requires-policy", "exit", "exit-address-family", "no ipv6 nd suppress-ra", ""}
	for line := range strings.Lines(config) {
		line = strings.TrimSpace(line)
		if !slices.Contains(silent, line) && !strings.HasPrefix(line, "!") && !strings.Contains(running, " "+line+"\n") &&
			!strings.Contains(running, "\n"+line+"\n") {
			t.Errorf("FRR did not accept %q:\n%s", line, running)
		}
	}
}
