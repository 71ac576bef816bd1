package config

import (
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"railwright/node/internal/plan"
)

func railOf(name, bridge string, table int) Rail {
	return Rail{
		Rail: plan.Rail{Name: name, Bridge: bridge, Uplink: "u" + bridge, Table: table}, Leaf: netip.MustParseAddr("192.0.2.1"),
		IPv4: true, Prefixes: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}, MaxPrefixes: 7,
	}
}

func TestRemovedRailsAreRetired(t *testing.T) {
	now := Config{Rails: []Rail{railOf("rail0", "br0", 1), railOf("rail1", "br1", 2)}}
	for name, test := range map[string]struct {
		before Rail
		// retired is the expected result; want is the error if the rail has attachments.
		retired bool
		want    string
	}{
		"the same":           {railOf("rail0", "br0", 1), false, ""},
		"gone":               {railOf("rail9", "br9", 9), true, ""},
		"on another bridge":  {railOf("rail0", "br9", 1), false, "rail rail0 has attachments on bridge br9 with table 1"},
		"with another table": {railOf("rail0", "br0", 9), false, "gives it bridge br0 and table 1"},
		"renamed":            {railOf("rail9", "br1", 2), false, "gives its bridge to rail rail1"},
		"without its table":  {railOf("rail9", "br9", 2), false, "gives its table to rail rail1"},
	} {
		for _, holds := range []bool{false, true} {
			retired, err := now.Retired([]Rail{test.before}, func(string) bool { return holds })
			if (len(retired) == 1 && retired[0].Retired && retired[0].Bridge == test.before.Bridge) != test.retired {
				t.Errorf("%s, holds %v: retired %v", name, holds, retired)
			}
			if wrong := holds && test.want != ""; (err != nil) != wrong || wrong && !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s, holds %v: %v", name, holds, err)
			}
		}
	}
}

func TestRailsAreRemembered(t *testing.T) {
	file := filepath.Join(t.TempDir(), "rails.json")
	if none, err := RecallRails(file); err != nil || len(none) != 0 {
		t.Errorf("without a file: %v %v", none, err)
	}
	unnumbered := railOf("rail1", "br1", 2)
	unnumbered.Leaf, unnumbered.Retired = netip.Addr{}, true
	kept := []Rail{railOf("rail0", "br0", 1), unnumbered}
	if err := RememberRails(file, kept); err != nil {
		t.Fatal(err)
	}
	if found, err := RecallRails(file); err != nil || !reflect.DeepEqual(found, kept) {
		t.Errorf("%v %v", found, err)
	}
	if err := os.WriteFile(file, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := RecallRails(file); err == nil || !strings.Contains(err.Error(), "delete "+file) {
		t.Errorf("damaged file: %v", err)
	}
}

func TestLeafMustNotBeInPodPrefixes(t *testing.T) {
	text := "node: one\ntenants: {kind: local}\nrails:\n" +
		"- {name: rail0, bridge: br0, uplink: p0, leaf: 10.2.0.1, table: 1, prefixes: [10.1.0.0/16]}\n" +
		"- {name: rail1, bridge: br1, uplink: p1, leaf: unnumbered, table: 2, prefixes: [10.2.0.0/16]}\n"
	if _, err := Parse([]byte(text), Own{}); err == nil || !strings.Contains(err.Error(), "rails[0].leaf: 10.2.0.1 must not be in 10.2.0.0/16, a prefix of pods of rail rail1") {
		t.Errorf("%v", err)
	}
	if _, err := Parse([]byte(strings.Replace(text, "10.2.0.1", "10.9.0.1", 1)), Own{}); err != nil {
		t.Error(err)
	}
}
