package frrconfig_test

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"railwright/node/internal/announce/frrconfig"
	"railwright/node/testlab"
)

var update = flag.Bool("update", false, "rewrite the examples")

const folder = "../../../deploy/frr"

// examples returns the files in deploy/frr by name: two rails, with leaves known by interface or by address.
func examples() map[string]string {
	files := map[string]string{}
	var rails, numbered []frrconfig.Rail
	for number := range 2 {
		rail := frrconfig.Rail{
			Name: fmt.Sprintf("rail%d", number), Interface: fmt.Sprintf("br-rail%d", number), Table: 7700 + number,
			Prefixes: []netip.Prefix{
				netip.MustParsePrefix(fmt.Sprintf("10.%d.0.0/16", number)),
				netip.MustParsePrefix(fmt.Sprintf("fd00:0:%d::/48", number)),
			},
		}
		rails = append(rails, rail)
		rail.Peer = netip.MustParseAddr(fmt.Sprintf("192.0.2.%d", 2*number))
		numbered = append(numbered, rail)
	}
	for kind, rails := range map[string][]frrconfig.Rail{"unnumbered": rails, "numbered": numbered} {
		for release, backend := range map[string]frrconfig.Backend{"frr10": frrconfig.KernelTable, "frr8": frrconfig.Vty} {
			node := frrconfig.Node{Backend: backend, ASN: 4200000101, RouterID: netip.MustParseAddr("10.255.1.1"), Rails: rails}
			files[fmt.Sprintf("node-%s-%s.conf", release, kind)] = node.Text()
		}
		ports := map[string][]string{"unnumbered": {"swp1", "swp2"}, "numbered": {"192.0.2.1", "192.0.2.5"}}[kind]
		leaf := frrconfig.Leaf{ASN: 65000, RouterID: netip.MustParseAddr("10.255.0.1"), Rail: "rail0",
			Prefixes: rails[0].Prefixes, MaxPrefixes: 256, Ports: ports}
		files[fmt.Sprintf("leaf-%s.conf", kind)] = leaf.Text()
	}
	return files
}

func TestExamplesMatchGeneratedText(t *testing.T) {
	for name, text := range examples() {
		path := filepath.Join(folder, name)
		if *update {
			if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		there, err := os.ReadFile(path)
		if err != nil || string(there) != text {
			t.Errorf("%s differs from the generated text (%v); run this test with -update", path, err)
		}
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.conf"))
	if err != nil || len(files) != len(examples()) {
		t.Errorf("%d files for %d examples, %v", len(files), len(examples()), err)
	}
}

// TestFRRAcceptsEveryLine checks that FRR accepts each line of the examples and shows it again.
func TestFRRAcceptsEveryLine(t *testing.T) {
	releases := map[testlab.FRRVersion][]string{
		testlab.FRR10: {"node-frr10-", "node-frr8-", "leaf-"},
		testlab.FRR8:  {"node-frr8-", "leaf-"},
	}
	for release, kinds := range releases {
		for name, text := range examples() {
			for _, kind := range kinds {
				if !strings.HasPrefix(name, kind) {
					continue
				}
				t.Run(fmt.Sprintf("FRR %s %s", release, name), func(t *testing.T) {
					t.Parallel()
					namespace := testlab.NewNamespace(t, "frr")
					for _, link := range []string{"br-rail0", "br-rail1", "swp1", "swp2"} {
						namespace.IP(t, "link", "add", link, "type", "veth", "peer", "name", "to-"+link)
					}
					frr := testlab.StartFRR(t, namespace, release, text)
					compare(t, text, frr.Show(t, "show running-config"))
				})
			}
		}
	}
}

// compare compares the given lines with those that FRR shows, except for its defaults, which it does not show.
func compare(t *testing.T, want, running string) {
	t.Helper()
	silent := map[string]bool{"bgp ebgp-requires-policy": true, "exit": true, "exit-address-family": true, "no ipv6 nd suppress-ra": true}
	has := map[string]bool{}
	for line := range strings.Lines(running) {
		has[strings.TrimSpace(line)] = true
	}
	for line := range strings.Lines(want) {
		line = strings.TrimSpace(line)
		if line != "" && !strings.HasPrefix(line, "!") && !silent[line] && !has[line] {
			t.Errorf("FRR did not accept %q:\n%s", line, running)
		}
	}
	if strings.Contains(running, "no bgp ebgp-requires-policy") {
		t.Error("session without route maps would announce everything")
	}
}
