package main

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"railwright/node/internal/release"
)

func TestTheReleaseIsToldAndNamesTheImage(t *testing.T) {
	var told strings.Builder
	code, err := serve(t.Context(), []string{"--version"}, &told)
	if code != exitOK || err != nil || told.String() != "railwrightd "+release.Version+"\n" {
		t.Errorf("--version: status %d, %v, %q", code, err, told.String())
	}
	image := regexp.MustCompile(`railwright/node:\S+`)
	for _, file := range []string{"daemonset.yaml", "README.md", "Containerfile"} {
		content, err := os.ReadFile(deployFolder + file)
		if err != nil {
			t.Fatal(err)
		}
		named := image.FindAllString(string(content), -1)
		if len(named) == 0 {
			t.Errorf("%s names no image", file)
		}
		for _, one := range named {
			if one != "railwright/node:"+release.Version {
				t.Errorf("%s names %s", file, one)
			}
		}
	}
}
