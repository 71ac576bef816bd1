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

// TestPluginHasFewDependencies keeps the program that runs for every pod small. The libraries of CNI, gRPC and protobuf
// import regexp themselves and compile six expressions at every start; none of our packages may add to them.
func TestPluginHasFewDependencies(t *testing.T) {
	listed, err := exec.CommandContext(t.Context(), "go", "list", "-deps", "-tags=grpcnotrace", "-json=ImportPath,Imports", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	var packages []string
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
		packages = append(packages, name)
		if slices.Contains(pkg.Imports, "regexp") {
			t.Errorf("%s imports regexp", name)
		}
	}
	slices.Sort(packages)
	want := []string{
		"api/v1", "cmd/railwright-cni", "internal/attachment", "internal/cni", "internal/durable", "internal/failpoint",
		"internal/release", "internal/tombstone",
	}
	if !slices.Equal(packages, want) {
		t.Errorf("plugin has packages %q", packages)
	}
}
