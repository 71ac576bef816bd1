package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestNetworksOfTheExamplesPollTheirPorts checks every chain that deploy gives to users.
func TestNetworksOfTheExamplesPollTheirPorts(t *testing.T) {
	t.Parallel()
	var files []string
	for _, pattern := range []string{"examples/*/networks.yaml", "examples/*/*/*.conflist"} {
		found, err := filepath.Glob(deployFolder + pattern)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v, %v", pattern, found, err)
		}
		files = append(files, found...)
	}
	for _, file := range files {
		var printed strings.Builder
		code, err := checkNetworks(t.Context(), []string{file}, &printed)
		if err != nil || code == exitBad {
			t.Errorf("%s: status %d, %v\n%s", file, code, err, printed.String())
		}
	}
}

func TestNetworksWithoutPollingAreReported(t *testing.T) {
	t.Parallel()
	const object = `{"kind": "List", "items": [{"kind": "NetworkAttachmentDefinition", "metadata": {"namespace": "a", "name": "n"},
		"spec": {"config": "{\"plugins\": [{\"type\": \"ovs\"}]}"}}]}`
	for text, want := range map[string]struct {
		code    int
		printed string
	}{
		object: {exitBad, "problem: a/n: ovs looks at its port every 600ms"},
		`{"name": "n", "plugins": [{"type": "ovs", "link_state_check_interval": 10}]}`:  {exitBad, "gives its port 50ms"},
		`{"name": "n", "plugins": [{"type": "ovs", "link_state_check_interval": 200}]}`: {exitBad, "every 200ms"},
		`{"name": "n", "type": "ovs"}`: {exitBad, "problem: n: ovs looks"},
		`{"name": "n", "plugins": [{"type": "ovs", "link_state_check_interval": 10, "link_state_check_retries": 300}]}`: {exitOK, "1 networks"},
		`{"name": "n", "type": "macvlan"}`: {exitOK, "1 networks"},
		"kind: NetworkAttachmentDefinition\nmetadata: {name: net}\n---\nname: m\ntype: macvlan\n":     {exitFailure, "unknown: net: its chain is in a file"},
		`{"kind": "NetworkAttachmentDefinition", "metadata": {"name": "n"}, "spec": {"config": "{"}}`: {exitBad, "must be the JSON"},
	} {
		file := filepath.Join(t.TempDir(), "networks")
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		var printed strings.Builder
		code, err := checkNetworks(t.Context(), []string{file}, &printed)
		if code != want.code || err != nil || !strings.Contains(printed.String(), want.printed) {
			t.Errorf("%s: status %d, %v, %q", text, code, err, printed.String())
		}
	}
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := checkNetworks(t.Context(), []string{empty}, &strings.Builder{}); err == nil || !strings.Contains(err.Error(), "holds no network") {
		t.Errorf("an empty file: %v", err)
	}
}
