package main

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestThePluginIsSmall holds what is started for every pod to the few packages that it needs. The libraries of CNI, gRPC
// and protobuf import regexp themselves, and compile six expressions at every start; no package of ours adds to them.
func TestThePluginIsSmall(t *testing.T) {
	listed, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags=grpcnotrace", "-json=ImportPath,Imports", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	var own []string
	for decoder := json.NewDecoder(strings.NewReader(string(listed))); ; {
		var pkg struct {
			ImportPath string
			Imports    []string
		}
		if err := decoder.Decode(&pkg); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(pkg.ImportPath, "k8s.io/") {
			t.Errorf("%s is linked", pkg.ImportPath)
		}
		name, ours := strings.CutPrefix(pkg.ImportPath, "railwright/node/")
		if !ours {
			continue
		}
		own = append(own, name)
		if slices.Contains(pkg.Imports, "regexp") {
			t.Errorf("%s imports regexp", name)
		}
	}
	slices.Sort(own)
	want := []string{
		"api/v1", "cmd/railwright-cni", "internal/attachment", "internal/cni", "internal/durable", "internal/failpoint",
		"internal/release", "internal/tombstone",
	}
	if !slices.Equal(own, want) {
		t.Errorf("the plugin is made of %q", own)
	}
}
