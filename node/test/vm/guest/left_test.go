//go:build vmguest

package guest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"railwright/node/testlab"
)

// longestLeft is longer than the daemon keeps a port without a record: 10 s and two looks.
const longestLeft = 25 * time.Second

// wantNothingLeft checks that no attachment, port, flow, route, address or file of any pod is left, and that the VFs
// are back in the host's namespace.
func (n *node) wantNothingLeft(t *testing.T) {
	t.Helper()
	var left []string
	gone := func() bool {
		left = n.left(t)
		return len(left) == 0
	}
	begun := time.Now()
	for !gone() && time.Since(begun) < longestLeft {
		time.Sleep(betweenLooks)
	}
	if took := time.Since(begun); took > 2*betweenLooks {
		t.Logf("nothing was left after %.1f s", took.Seconds())
	}
	for _, what := range left {
		t.Error("left: " + what)
	}
}

func (n *node) left(t *testing.T) (found []string) {
	t.Helper()
	for _, one := range n.attachments(t) {
		found = append(found, "attachment of "+one.HostInterface)
	}
	found = append(found, files(t, filepath.Join(n.state, "railwright", "attachments"))...)
	found = append(found, files(t, filepath.Join(n.state, "railwright", "tombstones"))...)
	for _, rail := range n.rails {
		for _, port := range rail.ports(t) {
			found = append(found, "port "+port)
		}
		flows := testlab.Run(t, "ovs-ofctl", "-O", "OpenFlow14", "dump-flows", "--names", rail.bridge())
		for line := range strings.Lines(flows) {
			if strings.Contains(line, rail.prefix()[:5]) || strings.Contains(line, rail.prefix6()[:7]) {
				found = append(found, "flow "+strings.TrimSpace(line))
			}
		}
		for _, family := range []string{"-4", "-6"} {
			// ip fails for a table that never had a route.
			routes, _ := exec.Command("ip", family, "route", "show", "table", strconv.Itoa(rail.table())).Output()
			for line := range strings.Lines(string(routes)) {
				found = append(found, "route "+strings.TrimSpace(line))
			}
		}
		for vf := range rail.vfs {
			if _, err := os.Stat("/sys/class/net/" + rail.vf(vf)); err != nil {
				found = append(found, "VF "+rail.vf(vf)+" is not back")
			}
		}
	}
	atLeaf := n.leaf.IP(t, "route", "show", "proto", "bgp") + n.leaf.IP(t, "-6", "route", "show", "proto", "bgp")
	if atLeaf != "" {
		found = append(found, "the leaf's "+atLeaf)
	}
	return found
}

// files returns the files below a folder, except locks.
func files(t *testing.T, folder string) []string {
	t.Helper()
	var found []string
	_ = filepath.WalkDir(folder, func(path string, entry os.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() && entry.Name() != "lock" {
			found = append(found, "file "+path)
		}
		return nil
	})
	return found
}
