//go:build k8s

package k8s

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"railwright/node/internal/plan"
)

// traces returns everything that pods create on nodes, on leaves and in the API server, one line each: ports, flows,
// routes, addresses, links, namespaces and files.
func (c *cluster) traces(t *testing.T) []string {
	t.Helper()
	var found []string
	add := func(format string, values ...any) { found = append(found, fmt.Sprintf(format, values...)) }
	for _, node := range c.nodes {
		for _, rail := range c.rails {
			for port := range strings.FieldsSeq(node.Switch.Vsctl(t, "list-ports", rail.Bridge)) {
				add("%s: port %s of %s", node.Name, port, rail.Bridge)
			}
			for _, family := range []string{"-4", "-6"} {
				// ip fails for a table that never had a route.
				routes, _ := node.Namespace.Try("ip", family, "route", "show", "table", strconv.Itoa(rail.Table))
				for line := range strings.Lines(routes) {
					if !strings.HasPrefix(line, "Error:") && !strings.HasPrefix(line, "Dump terminated") {
						add("%s: route %s", node.Name, strings.TrimSpace(line))
					}
				}
			}
		}
		for _, flow := range node.flows(t) {
			if flow.Attachment != 0 {
				add("%s: flow %s", node.Name, flow.Text)
			}
		}
		for line := range strings.Lines(node.Namespace.IP(t, "-o", "link")) {
			if strings.HasPrefix(line, "Error:") {
				continue // ip complains of names in /run/netns that belong to other mount namespaces
			}
			// The output of ip can contain errors about a peer whose namespace is being deleted.
			if number, rest, listed := strings.Cut(line, ": "); listed && !strings.Contains(number, " ") {
				add("%s: link %s", node.Name, strings.Fields(rest)[0])
			}
		}
		for _, file := range node.files(t) {
			add("%s: file %s", node.Name, file)
		}
	}
	for _, leaf := range c.leaves {
		for address, node := range leaf.hostRoutes(t) {
			add("leaf of %s: route to %s by %s", leaf.Rail.Name, address, node)
		}
	}
	for line := range strings.Lines(c.kubectl(t, "get", "ippools.whereabouts.cni.cncf.io", "-A", "-o",
		`jsonpath={range .items[*]}{.metadata.name}{" "}{.spec.allocations}{"\n"}{end}`)) {
		if !strings.HasSuffix(strings.TrimSpace(line), "{}") {
			add("whereabouts: %s", strings.TrimSpace(line))
		}
	}
	slices.Sort(found)
	return found
}

// files returns the files of pods' networks: our state, and those of the chain's plugins and the runtime.
func (n *node) files(t *testing.T) []string {
	t.Helper()
	var found []string
	for _, folder := range []string{
		"/var/lib/railwright/attachments", "/var/lib/railwright/tombstones", "/var/lib/cni", "/tmp/ovscache", "/run/netns",
	} {
		check(t, filepath.WalkDir(n.path(folder), func(path string, entry fs.DirEntry, err error) error {
			if os.IsNotExist(err) {
				return nil
			}
			// host-local keeps a lock and the last address that it assigned.
			if err != nil || entry.IsDir() || entry.Name() == "lock" || strings.HasPrefix(entry.Name(), "last_reserved_ip") {
				return err
			}
			file := strings.TrimPrefix(path, n.path(""))
			if content, _ := os.ReadFile(path); strings.Contains(string(content), `"parts":null`) {
				file += leaving
			}
			found = append(found, file)
			return nil
		}))
	}
	return found
}

// leaving marks the file of an attachment that is deleted as soon as its addresses may be used again.
const leaving = ", whose pod is gone"

// settled returns the traces once two looks agree and no attachment is leaving, because pods of an earlier part may still be
// terminating.
func (c *cluster) settled(t *testing.T) []string {
	t.Helper()
	last := c.traces(t)
	awaitEvery(t, kubectlPause, "unchanged traces", tracesGo, func() string {
		now := c.traces(t)
		differ := difference(last, now)
		for _, line := range now {
			if strings.HasSuffix(line, leaving) {
				differ += line + "\n"
			}
		}
		last = now
		return differ
	})
	return last
}

// tracesGo is the time limit for traces to disappear. 0.2 to 0.8 s were observed.
const tracesGo = 15 * time.Second

// awaitTraces waits until exactly these traces exist.
func (c *cluster) awaitTraces(t *testing.T, want []string) {
	t.Helper()
	took := awaitEvery(t, kubectlPause, "expected traces", tracesGo, func() string {
		return difference(want, c.traces(t))
	})
	t.Logf("expected traces reached after %.1f s", took.Seconds())
}

// difference returns the differences between two lists of traces, one per line, or "".
func difference(want, now []string) string {
	var differ []string
	for _, line := range now {
		if !slices.Contains(want, line) {
			differ = append(differ, "left: "+line)
		}
	}
	for _, line := range want {
		if !slices.Contains(now, line) {
			differ = append(differ, "lost: "+line)
		}
	}
	return strings.Join(differ, "\n")
}

// installed is a flow of a bridge as listed by Open vSwitch.
type installed struct {
	// Attachment is the number of the flow's attachment, or 0 for a flow of the rail.
	Attachment int
	Reason     plan.Reason
	Packets    int
	Text       string
}

var listed = regexp.MustCompile(`cookie=0x([0-9a-f]+), .*n_packets=(\d+), .*?(priority=.*)`)

// flows returns our flows on all bridges of the node.
func (n *node) flows(t *testing.T) []installed {
	t.Helper()
	var found []installed
	for _, rail := range n.cluster.rails {
		for _, line := range listed.FindAllStringSubmatch(n.Switch.Ofctl(t, rail.Bridge, "dump-flows"), -1) {
			cookie, err := strconv.ParseUint(line[1], 16, 64)
			check(t, err)
			if cookie>>48 != plan.Magic {
				t.Errorf("%s: a flow of %s is not ours: %s", n.Name, rail.Bridge, line[0])
			}
			found = append(found, installed{
				Attachment: int(cookie >> 32 & 0xffff), Reason: plan.Reason(cookie), Packets: number(t, line[2]),
				Text: rail.Bridge + " " + line[3],
			})
		}
	}
	return found
}
