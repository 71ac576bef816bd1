package openvswitch

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"railwright/node/internal/plan"
)

// rule writes a flow as ovs-ofctl reads it.
func rule(flow plan.Flow) string {
	match := flow.Match
	if match != "" {
		match += ","
	}
	return fmt.Sprintf("cookie=%#x,table=%d,priority=%d,%sactions=%s\n", flow.Cookie, flow.Table, flow.Priority, match,
		flow.Actions)
}

func strictRule(flow plan.Flow) string {
	text := fmt.Sprintf("delete_strict table=%d,priority=%d", flow.Table, flow.Priority)
	if flow.Match != "" {
		text += "," + flow.Match
	}
	return text + "\n"
}

// Change adds and deletes flows in one atomic bundle, and the meters that no flow has any more. A flow whose meter cannot
// be made is left out, and the error says so: the others are not to suffer.
func (c *Client) Change(ctx context.Context, name string, add, remove []plan.Flow) error {
	bridge, err := c.known(name)
	if err != nil {
		return err
	}
	return bridge.change(func() (int, error) {
		add, meterError := c.makeMeters(ctx, name, add)
		if err := c.changeFlows(ctx, name, add, remove); err != nil {
			return unknown, err
		}
		return unknown, errors.Join(meterError, c.dropIdle(ctx, name, remove))
	})
}

func (c *Client) changeFlows(ctx context.Context, bridge string, add, remove []plan.Flow) error {
	stays := map[plan.Key]bool{}
	for _, flow := range add {
		stays[flow.Key()] = true
	}
	var bundle strings.Builder
	for _, flow := range remove {
		if !stays[flow.Key()] {
			bundle.WriteString(strictRule(flow))
		}
	}
	for _, flow := range add {
		bundle.WriteString("add " + rule(flow))
	}
	if bundle.Len() == 0 {
		return nil
	}
	if err := c.ofctl(ctx, bridge, bundle.String(), ignore, "add-flows", "-"); err != nil {
		return fmt.Errorf("flows of %s: nothing of %d added and %d deleted: %w", bridge, len(add), len(remove), err)
	}
	return nil
}

func ignore(string) {}

// Replace makes the bridge's flows exactly these, in one atomic bundle, and says how many differed. Like Change it
// leaves out flows whose meter cannot be made.
func (c *Client) Replace(ctx context.Context, name string, flows []plan.Flow) (int, error) {
	bridge, err := c.known(name)
	if err != nil {
		return 0, err
	}
	repaired := 0
	err = bridge.change(func() (int, error) {
		flows, meterError := c.makeMeters(ctx, name, flows)
		c.boundAnswers(ctx, name)
		differing, err := c.compare(ctx, name, flows)
		if err != nil {
			return unknown, err
		}
		repaired = countFlows(differing)
		if repaired > 0 {
			c.settings.Log.Info("flows differ from those wanted (+ missing, - too many)", "bridge", name,
				"count", repaired, "first", differing[:min(len(differing), mostTold)])
			err := c.ofctl(ctx, name, rules(flows), ignore, "replace-flows", "-")
			if err != nil {
				return unknown, fmt.Errorf("flows of %s: nothing of %d replaced: %w", name, len(flows), err)
			}
		}
		return len(flows), errors.Join(meterError, c.dropMeters(ctx, name, flows))
	})
	return repaired, err
}

func rules(flows []plan.Flow) string {
	var text strings.Builder
	for _, flow := range flows {
		text.WriteString(rule(flow))
	}
	return text.String()
}

// Differences between the flows wanted and those there, in ovs-ofctl's words.
func (c *Client) Differences(ctx context.Context, name string, flows []plan.Flow) ([]string, error) {
	if _, err := c.known(name); err != nil {
		return nil, err
	}
	differing, err := c.compare(ctx, name, flows)
	if err != nil {
		return nil, err
	}
	lines := make([]string, 0, len(differing))
	for _, line := range differing {
		difference := "not wanted: "
		if line[0] == '+' {
			difference = "missing: "
		}
		lines = append(lines, difference+line[1:])
	}
	wrong, err := c.wrongMeters(ctx, name, flows)
	return append(lines, wrong...), err
}

// compare gives ovs-ofctl's lines: + for a flow that is missing, - for one too many; both for one that is another.
func (c *Client) compare(ctx context.Context, bridge string, flows []plan.Flow) ([]string, error) {
	var differing []string
	err := c.ofctl(ctx, bridge, rules(flows), func(line string) {
		if strings.HasPrefix(line, "+") || strings.HasPrefix(line, "-") {
			differing = append(differing, line)
		}
	}, "diff-flows", "/dev/stdin")
	var exit exitStatus
	if errors.As(err, &exit) && exit.status == differ && len(differing) > 0 {
		return differing, nil
	}
	if err != nil {
		return nil, fmt.Errorf("flows of %s cannot be compared: %w", bridge, err)
	}
	return nil, nil
}

// mostTold lines of a difference go to the log.
const mostTold = 4

// differ is the exit status of ovs-ofctl diff-flows where there are differences.
const differ = 2

// countFlows counts those that differ, each once.
func countFlows(differing []string) int {
	keys := make([]string, 0, len(differing))
	for _, line := range differing {
		key, _, _ := strings.Cut(line[1:], " actions=")
		fields := strings.Fields(key)
		fields = slices.DeleteFunc(fields, func(word string) bool { return strings.HasPrefix(word, "cookie=") })
		keys = append(keys, strings.Join(fields, " "))
	}
	slices.Sort(keys)
	return len(slices.Compact(keys))
}

// Counters of the bridge's flows of ours, by cookie.
func (c *Client) Counters(ctx context.Context, name string) (map[uint64]Count, error) {
	if _, err := c.known(name); err != nil {
		return nil, err
	}
	counters := map[uint64]Count{}
	ours := fmt.Sprintf("cookie=%#x/%#x", plan.Magic<<48, uint64(0xffff)<<48)
	var wrong error
	err := c.ofctl(ctx, name, "", func(line string) {
		cookie, count, ok, err := counted(line)
		wrong = errors.Join(wrong, err)
		if ok {
			sum := counters[cookie]
			counters[cookie] = Count{sum.Packets + count.Packets, sum.Bytes + count.Bytes, sum.Flows + 1}
		}
	}, "dump-flows", ours)
	if err := errors.Join(err, wrong); err != nil {
		return nil, fmt.Errorf("counters of %s: %w", name, err)
	}
	return counters, nil
}

// counted reads a line of ovs-ofctl dump-flows; ok is false for a line that is no flow.
func counted(line string) (cookie uint64, count Count, ok bool, err error) {
	line, _, _ = strings.Cut(line, " actions=")
	values := map[string]string{}
	for word := range strings.SplitSeq(line, ", ") {
		name, value, _ := strings.Cut(strings.TrimSpace(word), "=")
		values[name] = value
	}
	if values["n_packets"] == "" {
		return 0, Count{}, false, nil
	}
	cookie, cookieError := strconv.ParseUint(values["cookie"], 0, 64)
	count.Packets, err = strconv.ParseUint(values["n_packets"], 10, 64)
	bytes, bytesError := strconv.ParseUint(values["n_bytes"], 10, 64)
	count.Bytes = bytes
	err = errors.Join(cookieError, err, bytesError)
	if err != nil {
		return 0, Count{}, false, fmt.Errorf("a flow that cannot be read: %.200q", line)
	}
	return cookie, count, true, nil
}
