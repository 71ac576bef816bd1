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

// rule returns a flow in ovs-ofctl's syntax.
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

// Change adds and deletes flows in an atomic bundle, and deletes meters that no flow uses any more. It skips flows
// whose meter cannot be created and reports them in the error, so that the others do not suffer.
func (c *Client) Change(ctx context.Context, name string, add, remove []plan.Flow) error {
	bridge, err := c.knownBridge(name)
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

// changeFlows uses the bridge's own connection. ovs-ofctl programs flows that are not encoded here, and those that
// failed: its error is better, and to program a flow twice changes nothing. The caller holds the bridge's writing.
func (c *Client) changeFlows(ctx context.Context, bridge string, add, remove []plan.Flow) error {
	stays := map[plan.Key]bool{}
	for _, flow := range add {
		stays[flow.Key()] = true
	}
	remove = slices.DeleteFunc(slices.Clone(remove), func(flow plan.Flow) bool { return stays[flow.Key()] })
	if len(add)+len(remove) == 0 || c.bridges[bridge].program(ctx, add, remove) == nil {
		return nil
	}
	var bundle strings.Builder
	for _, flow := range remove {
		bundle.WriteString(strictRule(flow))
	}
	for _, flow := range add {
		bundle.WriteString("add " + rule(flow))
	}
	if err := c.ofctl(ctx, bridge, bundle.String(), ignore, "add-flows", "-"); err != nil {
		return fmt.Errorf("change flows of %s (%d to add, %d to delete, none done): %w", bridge, len(add), len(remove), err)
	}
	return nil
}

func ignore(string) {}

// Replace makes flows the flows of the bridge in an atomic bundle and returns how many differed. Like Change it skips
// flows whose meter cannot be created.
func (c *Client) Replace(ctx context.Context, name string, flows []plan.Flow) (int, error) {
	bridge, err := c.knownBridge(name)
	if err != nil {
		return 0, err
	}
	repaired := 0
	err = bridge.change(func() (int, error) {
		flows, meterError := c.makeMeters(ctx, name, flows)
		c.limitAnswers(ctx, name)
		differing, err := c.compare(ctx, name, flows)
		if err != nil {
			return unknown, err
		}
		repaired = countFlows(differing)
		if repaired > 0 {
			c.settings.Log.Info("flows differ (+ missing, - unexpected)", "bridge", name,
				"count", repaired, "first", differing[:min(len(differing), maxLogged)])
			err := c.ofctl(ctx, name, rules(flows), ignore, "replace-flows", "-")
			if err != nil {
				return unknown, fmt.Errorf("replace flows of %s (%d, none done): %w", name, len(flows), err)
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

// Differences returns the differences between the wanted and the actual flows, in ovs-ofctl's syntax.
func (c *Client) Differences(ctx context.Context, name string, flows []plan.Flow) ([]string, error) {
	if _, err := c.knownBridge(name); err != nil {
		return nil, err
	}
	differing, err := c.compare(ctx, name, flows)
	if err != nil {
		return nil, err
	}
	lines := make([]string, 0, len(differing))
	for _, line := range differing {
		difference := "unexpected: "
		if line[0] == '+' {
			difference = "missing: "
		}
		lines = append(lines, difference+line[1:])
	}
	wrong, err := c.wrongMeters(ctx, name, flows)
	return append(lines, wrong...), err
}

// compare returns the lines of ovs-ofctl diff-flows: + for a missing flow, - for an unexpected one, both for a flow
// with other actions.
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
		return nil, fmt.Errorf("compare flows of %s: %w", bridge, err)
	}
	return nil, nil
}

// maxLogged is the number of differences that are logged.
const maxLogged = 4

// differ is the exit status of ovs-ofctl diff-flows for differences.
const differ = 2

// countFlows counts the flows that differ, each once.
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

// Counters returns the counters of our flows on the bridge by cookie.
func (c *Client) Counters(ctx context.Context, name string) (map[uint64]Count, error) {
	if _, err := c.knownBridge(name); err != nil {
		return nil, err
	}
	counters := map[uint64]Count{}
	ours := fmt.Sprintf("cookie=%#x/%#x", plan.Magic<<48, uint64(0xffff)<<48)
	var wrong error
	err := c.ofctl(ctx, name, "", func(line string) {
		cookie, count, ok, err := parseCount(line)
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

// parseCount parses a line of ovs-ofctl dump-flows. ok is false for a line that is not a flow.
func parseCount(line string) (cookie uint64, count Count, ok bool, err error) {
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
		return 0, Count{}, false, fmt.Errorf("parse flow: %.200q", line)
	}
	return cookie, count, true, nil
}
