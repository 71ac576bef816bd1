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

// deployed is the configuration that a cluster is given.
func deployed(t *testing.T) string {
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

// frrConfigOf a configuration, as the program prints it.
func frrConfigOf(t *testing.T, configuration string, options ...string) (stdout, complained string, code int) {
	t.Helper()
	file := t.TempDir() + "/railwrightd.yaml"
	if err := os.WriteFile(file, []byte(configuration), 0o600); err != nil {
		t.Fatal(err)
	}
	arguments := append([]string{"frr-config", "--config", file}, options...)
	return outputs(t, exec.Command(railnode.Daemon(t), arguments...))
}

var numberedLeaves = strings.NewReplacer("leaf: unnumbered           #", "leaf: 192.0.2.0 #", "leaf: unnumbered\n", "leaf: 192.0.2.2\n")

func TestWhatIsDeployedGivesTheExamplesOfFRR(t *testing.T) {
	const vty = "backend: vty\n  asn: 4200000101\n#"
	for example, configuration := range map[string]string{
		"node-frr10-unnumbered.conf": deployed(t),
		"node-frr10-numbered.conf":   numberedLeaves.Replace(deployed(t)),
		"node-frr8-unnumbered.conf":  strings.Replace(deployed(t), "backend: kernel-table", vty, 1),
		"node-frr8-numbered.conf":    numberedLeaves.Replace(strings.Replace(deployed(t), "backend: kernel-table", vty, 1)),
	} {
		want, err := os.ReadFile(deployFolder + "frr/" + example)
		if err != nil {
			t.Fatal(err)
		}
		stdout, complained, code := frrConfigOf(t, configuration, "--router-id", "10.255.1.1", "--asn", "4200000101")
		if code != exitOK || complained != "" || stdout != string(want) {
			t.Errorf("%s: status %d, %q\n%s", example, code, complained, stdout)
		}
	}
}

func TestFRRConfigSaysWhatItLacks(t *testing.T) {
	vty := strings.Replace(deployed(t), "backend: kernel-table", "backend: vty\n  asn: 65001\n#", 1)
	for _, test := range []struct {
		configuration string
		options       []string
		want          string
	}{
		{deployed(t), []string{"--asn", "65001"}, `--router-id "": give an IPv4 address`},
		{deployed(t), []string{"--asn", "65001", "--router-id", "fd00::1"}, `--router-id "fd00::1"`},
		{deployed(t), []string{"--asn", "65001", "--router-id", "0.0.0.0"}, `--router-id "0.0.0.0"`},
		{deployed(t), []string{"--router-id", "10.255.1.1"}, "the AS number is not known: give --asn N"},
		{deployed(t), []string{"--router-id", "10.255.1.1", "--asn", "4294967296"}, `--asn "4294967296": give a number from 1`},
		{vty, []string{"--router-id", "10.255.1.1", "--asn", "65002"}, "--asn 65002 is not the configuration's frr.asn 65001"},
		{"rails: []\n", []string{"--router-id", "10.255.1.1", "--asn", "65002"}, "rails: 0 are given"},
	} {
		stdout, complained, code := frrConfigOf(t, test.configuration, test.options...)
		if code != exitMisuse || stdout != "" || !strings.Contains(complained, test.want) {
			t.Errorf("%v: status %d, %q %q", test.options, code, stdout, complained)
		}
	}
}

func TestBFDIsAskedFor(t *testing.T) {
	plain, _, _ := frrConfigOf(t, deployed(t), "--router-id", "10.255.1.1", "--asn", "65001")
	stdout, _, code := frrConfigOf(t, deployed(t), "--router-id", "10.255.1.1", "--asn", "65001", "--bfd")
	for _, part := range []string{"bgpd=yes, bfdd=yes\n", "\n neighbor LEAVES bfd\n"} {
		if code != exitOK || !strings.Contains(stdout, part) || strings.Contains(plain, part) {
			t.Errorf("%q is not there with --bfd alone: status %d", part, code)
		}
	}
}

// A node with one rail of IPv4 alone and one of both families; what its FRR is given is what the program prints.
const twoKinds = `
node: node-1
rails:
- {name: rail0, bridge: br-rail0, uplink: p0, leaf: 192.0.2.0, table: 7700, prefixes: [10.0.0.0/16, 10.8.0.0/24]}
- {name: rail1, bridge: br-rail1, uplink: p1, leaf: unnumbered, table: 7701, prefixes: [10.1.0.0/16, "fd00:0:1::/48"]}
tenants: {kind: local}
`

// permissive leaf: it takes all that it is told.
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

// TestNothingWrongLeavesAnFRRThatWasConfiguredSo, whoever puts it into the rail's table or into bgpd, though both leaves
// would take all.
func TestNothingWrongLeavesAnFRRThatWasConfiguredSo(t *testing.T) {
	for _, release := range []railnode.Release{railnode.NewFRR, railnode.OldFRR} {
		t.Run(release.String(), func(t *testing.T) {
			t.Parallel()
			configuration := twoKinds + fmt.Sprintf("frr: {backend: %s, asn: 65001}\n", release.Backend)
			text, complained, code := frrConfigOf(t, configuration, "--router-id", "10.255.1.1")
			if code != exitOK {
				t.Fatal(complained)
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
			takenWhole(t, text, frr.Show(t, "show running-config"))
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
				// What is right came last: a leaf that has it has been told of all. A session that opens twice takes all
				// back for a moment, so a look counts by what it shows, never by what it lacks.
				testlab.Eventually(t, fmt.Sprintf("rail%d's leaf has its pods", rail), func() bool {
					all := heard(t, leaf)
					for _, prefix := range all {
						if !slices.Contains(right[rail], prefix) {
							t.Fatalf("rail%d's leaf has %v, not %v\n%s", rail, all, right[rail], frr.Show(t, "show running-config"))
						}
					}
					return slices.Equal(all, right[rail])
				})
			}
		})
	}
}

// inject a route of a rail as the daemon would, past its checks.
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

// heard by a leaf of its node: all prefixes.
func heard(t *testing.T, leaf *testlab.FRR) []string {
	t.Helper()
	var found []string
	for _, family := range []string{"ipv4", "ipv6"} {
		for line := range strings.Lines(leaf.Show(t, "show bgp "+family+" unicast")) {
			fields := strings.Fields(line)
			if len(fields) < 2 || !strings.HasPrefix(fields[0], "*") {
				continue
			}
			// A prefix may touch the marks before it.
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

// takenWhole by FRR, but for what is its default or a way of writing.
func takenWhole(t *testing.T, given, running string) {
	t.Helper()
	silent := []string{"bgp ebgp-requires-policy", "exit", "exit-address-family", "no ipv6 nd suppress-ra", ""}
	for line := range strings.Lines(given) {
		line = strings.TrimSpace(line)
		if !slices.Contains(silent, line) && !strings.HasPrefix(line, "!") && !strings.Contains(running, " "+line+"\n") &&
			!strings.Contains(running, "\n"+line+"\n") {
			t.Errorf("FRR has not taken %q:\n%s", line, running)
		}
	}
}
