package openvswitch

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
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
	input := func() io.Reader { return strings.NewReader(bundle.String()) }
	if err := c.ofctl(ctx, bridge, input, ignore, "add-flows", "-"); err != nil {
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
		repaired = differing.count()
		if repaired > 0 {
			c.settings.Log.Info("flows differ (+ missing, - unexpected)", "bridge", name,
				"count", repaired, "first", differing.first[:min(len(differing.first), maxLogged)])
			err := c.ofctl(ctx, name, rules(flows), ignore, "replace-flows", "-")
			if err != nil {
				return unknown, fmt.Errorf("replace flows of %s (%d, none done): %w", name, len(flows), err)
			}
		}
		return len(flows), errors.Join(meterError, c.dropMeters(ctx, name, flows))
	})
	return repaired, err
}

// rules returns readers of flows in ovs-ofctl's syntax. They make the text as it is read: that of a large tenant takes more
// memory than all else.
func rules(flows []plan.Flow) func() io.Reader {
	return func() io.Reader { return &ruleReader{flows: flows} }
}

type ruleReader struct {
	flows []plan.Flow
	// text is what is left of the last flow.
	text string
}

func (r *ruleReader) Read(into []byte) (read int, err error) {
	for read < len(into) {
		if r.text == "" {
			if len(r.flows) == 0 {
				break
			}
			r.text, r.flows = rule(r.flows[0]), r.flows[1:]
		}
		copied := copy(into[read:], r.text)
		r.text = r.text[copied:]
		read += copied
	}
	if read == 0 && len(into) > 0 {
		return 0, io.EOF
	}
	return read, nil
}

// Differences returns differences between the wanted and the actual flows, in ovs-ofctl's syntax, at most maxDiffering.
func (c *Client) Differences(ctx context.Context, name string, flows []plan.Flow) ([]string, error) {
	if _, err := c.knownBridge(name); err != nil {
		return nil, err
	}
	differing, err := c.compare(ctx, name, flows)
	if err != nil {
		return nil, err
	}
	lines := make([]string, 0, len(differing.first))
	for _, line := range differing.first {
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
func (c *Client) compare(ctx context.Context, bridge string, flows []plan.Flow) (differing differences, err error) {
	err = c.ofctl(ctx, bridge, rules(flows), func(line string) {
		if strings.HasPrefix(line, "+") || strings.HasPrefix(line, "-") {
			differing.add(line)
		}
	}, "diff-flows", "/dev/stdin")
	var exit exitStatus
	if errors.As(err, &exit) && exit.status == differ && differing.count() > 0 {
		return differing, nil
	}
	if err != nil {
		return differences{}, fmt.Errorf("compare flows of %s: %w", bridge, err)
	}
	return differences{}, nil
}

const (
	// maxLogged is the number of differences that are logged.
	maxLogged = 4
	// maxDiffering is the number of differences that are kept.
	maxDiffering = 1000
)

// differ is the exit status of ovs-ofctl diff-flows for differences.
const differ = 2

// differences are lines of ovs-ofctl diff-flows: the first ones, and hashes of the flows of all.
type differences struct {
	first []string
	flows map[uint64]struct{}
}

var hashSeed = maphash.MakeSeed()

func (d *differences) add(line string) {
	if len(d.first) < maxDiffering {
		d.first = append(d.first, line)
	}
	if d.flows == nil {
		d.flows = map[uint64]struct{}{}
	}
	flow, _, _ := strings.Cut(line[1:], " actions=")
	fields := slices.DeleteFunc(strings.Fields(flow), func(word string) bool { return strings.HasPrefix(word, "cookie=") })
	d.flows[maphash.String(hashSeed, strings.Join(fields, " "))] = struct{}{}
}

// count returns the number of flows that differ. One with other actions has two lines.
func (d *differences) count() int { return len(d.flows) }

// Counters returns the counters of our flows on the bridge by cookie.
func (c *Client) Counters(ctx context.Context, name string) (map[uint64]Count, error) {
	if _, err := c.knownBridge(name); err != nil {
		return nil, err
	}
	counters := map[uint64]Count{}
	// Those of members, which may be thousands, are only summed.
	others := fmt.Sprintf("cookie=%#x/%#x", plan.Magic<<48, uint64(0xffff)<<48|uint64(plan.Admit))
	members := plan.Cookie(0, plan.Admit)
	var wrong error
	err := c.ofctl(ctx, name, nil, func(line string) {
		cookie, count, ok, err := parseCount(line)
		wrong = errors.Join(wrong, err)
		if ok {
			sum := counters[cookie]
			counters[cookie] = Count{sum.Packets + count.Packets, sum.Bytes + count.Bytes, sum.Flows + 1}
		}
	}, "dump-flows", others)
	if err == nil {
		err = c.ofctl(ctx, name, nil, func(line string) {
			if sum, found, err := parseSum(line); found {
				counters[members], wrong = sum, errors.Join(wrong, err)
			}
		}, "dump-aggregate", fmt.Sprintf("cookie=%#x/-1", members))
	}
	if err := errors.Join(err, wrong); err != nil {
		return nil, fmt.Errorf("counters of %s: %w", name, err)
	}
	return counters, nil
}

// parseSum parses the reply of ovs-ofctl dump-aggregate. found is false for another line.
func parseSum(line string) (sum Count, found bool, err error) {
	_, values, found := strings.Cut(line, "packet_count=")
	if !found {
		return sum, false, nil
	}
	if _, err := fmt.Sscanf(values, "%d byte_count=%d flow_count=%d", &sum.Packets, &sum.Bytes, &sum.Flows); err != nil {
		return sum, true, fmt.Errorf("parse %.200q: %w", line, err)
	}
	return sum, true, nil
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
