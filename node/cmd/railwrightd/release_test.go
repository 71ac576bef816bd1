package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"railwright/node/internal/release"
)

func TestReleaseIsPrintedAndNamesTheImage(t *testing.T) {
	var output strings.Builder
	code, err := serve(t.Context(), []string{"--version"}, &output)
	if code != exitOK || err != nil || output.String() != "railwrightd "+release.Version+"\n" {
		t.Errorf("--version: status %d, %v, %q", code, err, output.String())
	}
	image := regexp.MustCompile(`railwright/node:\S+`)
	for _, file := range []string{"daemonset.yaml", "sweeper.yaml", "README.md", "Containerfile"} {
		content, err := os.ReadFile(deployFolder + file)
		if err != nil {
			t.Fatal(err)
		}
		named := image.FindAllString(string(content), -1)
		if len(named) == 0 {
			t.Errorf("%s names no image", file)
		}
		for _, match := range named {
			if match != "railwright/node:"+release.Version {
				t.Errorf("%s names %s", file, match)
			}
		}
	}
}
