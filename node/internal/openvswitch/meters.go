package openvswitch

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"railwright/node/internal/plan"
)

// burstTenths makes a meter's bucket hold a tenth of a second, as Open vSwitch's manual advises; a smaller one starves
// TCP.
const burstTenths = 10

// formatMeter returns ovs-ofctl's syntax of a meter that drops above a rate, in units of 1000 bit/s.
func formatMeter(rate uint64) string {
	kilobits := min(max(rate/1000, 1), 1<<32-1)
	return fmt.Sprintf("rate=%d burst_size=%d", kilobits, max(kilobits/burstTenths, 1))
}

// metersOf returns the meters of the flows by number.
func metersOf(flows []plan.Flow) map[uint32]string {
	want := map[uint32]string{}
	for _, flow := range flows {
		if flow.Meter != 0 {
			want[flow.Meter] = formatMeter(flow.Rate)
		}
	}
	return want
}

// meters returns the bridge's numbered meters.
func (c *Client) meters(ctx context.Context, bridge string) (map[uint32]string, error) {
	named, err := c.namedMeters(ctx, bridge)
	if err != nil {
		return nil, err
	}
	there := map[uint32]string{}
	for name, band := range named {
		if number, err := strconv.ParseUint(name, 10, 32); err == nil {
			there[uint32(number)] = band
		}
	}
	return there, nil
}

// namedMeters returns all meters of the bridge by ovs-ofctl's name: a number, or a purpose.
func (c *Client) namedMeters(ctx context.Context, bridge string) (map[string]string, error) {
	there, name := map[string]string{}, ""
	err := c.ofctl(ctx, bridge, nil, func(line string) {
		if text, ok := strings.CutPrefix(line, "meter="); ok {
			name, _, _ = strings.Cut(text, " ")
			there[name] = "of another kind"
		} else if band, ok := strings.CutPrefix(line, "type=drop "); ok && name != "" {
			there[name] = strings.TrimSpace(band)
		}
	}, "dump-meters")
	if err != nil {
		return nil, fmt.Errorf("list meters of %s: %w", bridge, err)
	}
	return there, nil
}

// makeMeters creates the meters of the flows, which OpenFlow requires before the flows. It returns the flows without
// those whose meter failed: they would fail the whole bundle, and without a meter they would be unlimited.
func (c *Client) makeMeters(ctx context.Context, bridge string, flows []plan.Flow) ([]plan.Flow, error) {
	want := metersOf(flows)
	if len(want) == 0 {
		return flows, nil
	}
	there, failed := c.meters(ctx, bridge)
	if failed != nil {
		there = map[uint32]string{}
	}
	refused := map[uint32]bool{}
	refuse := func(number uint32, err error) {
		refused[number] = true
		failed = fmt.Errorf("skip flows of %s with rate %s: %w", bridge, want[number], err)
	}
	changed := false
	for _, flow := range flows {
		number := flow.Meter
		old, found := there[number]
		if number == 0 || old == want[number] || refused[number] {
			continue
		}
		changed = true
		if err := c.makeMeter(ctx, bridge, flow, found); err != nil {
			refuse(number, err)
		}
		there[number] = want[number]
	}
	if changed {
		wrong, err := c.checkMeters(ctx, bridge, flows)
		failed = errors.Join(failed, err)
		for number, err := range wrong {
			refuse(number, err)
		}
	}
	if len(refused) == 0 {
		return flows, failed
	}
	var rest []plan.Flow
	for _, flow := range flows {
		if !refused[flow.Meter] {
			rest = append(rest, flow)
		}
	}
	return rest, failed
}

// makeMeter creates the flow's meter, or changes the one that was found.
func (c *Client) makeMeter(ctx context.Context, bridge string, flow plan.Flow, found bool) error {
	if err := c.CheckRate(ctx, bridge, flow.Rate); err != nil {
		return err
	}
	command := "add-meter"
	if found {
		command = "mod-meter"
	}
	bands := strings.ReplaceAll(formatMeter(flow.Rate), " ", ",")
	return c.ofctl(ctx, bridge, nil, ignore, command, fmt.Sprintf("meter=%d,kbps,burst,bands=type=drop,%s", flow.Meter, bands))
}

// dropIdle deletes the meters of deleted flows that no other flow uses.
func (c *Client) dropIdle(ctx context.Context, bridge string, deleted []plan.Flow) error {
	had := metersOf(deleted)
	if len(had) == 0 {
		return nil
	}
	used, err := c.flowsByMeter(ctx, bridge)
	for number := range had {
		if flows, there := used[number]; there && flows == 0 {
			err = errors.Join(err, c.deleteMeter(ctx, bridge, number))
		}
	}
	return err
}

// flowsByMeter counts the flows of each meter of the bridge. It asks Open vSwitch, because deleting a meter in use
// would delete its flows.
func (c *Client) flowsByMeter(ctx context.Context, bridge string) (map[uint32]uint64, error) {
	used := map[uint32]uint64{}
	err := c.ofctl(ctx, bridge, nil, func(line string) {
		meter, rest, found := strings.Cut(line, " flow_count:")
		number, err := strconv.ParseUint(strings.TrimPrefix(meter, "meter:"), 10, 32)
		if !found || err != nil {
			return
		}
		count, _, _ := strings.Cut(rest, " ")
		if flows, err := strconv.ParseUint(count, 10, 32); err == nil {
			used[uint32(number)] = flows
		}
	}, "meter-stats")
	if err != nil {
		return nil, fmt.Errorf("read meters of %s: %w", bridge, err)
	}
	return used, nil
}

func (c *Client) deleteMeter(ctx context.Context, bridge string, number uint32) error {
	if err := c.ofctl(ctx, bridge, nil, ignore, "del-meters", fmt.Sprintf("meter=%d", number)); err != nil {
		return fmt.Errorf("delete meter %d of %s: %w", number, bridge, err)
	}
	return nil
}

// dropMeters deletes the meters that no flow needs.
func (c *Client) dropMeters(ctx context.Context, bridge string, flows []plan.Flow) error {
	there, err := c.meters(ctx, bridge)
	if err != nil {
		// No flow needs a meter, and a datapath without meters does not list them.
		if len(metersOf(flows)) == 0 {
			return nil
		}
		return err
	}
	want := metersOf(flows)
	for number := range there {
		if _, ok := want[number]; !ok {
			err = errors.Join(err, c.deleteMeter(ctx, bridge, number))
		}
	}
	return err
}

// wrongMeters describes the meters that are missing or have another rate.
func (c *Client) wrongMeters(ctx context.Context, bridge string, flows []plan.Flow) ([]string, error) {
	want := metersOf(flows)
	wrong := c.checkAnswers(ctx, bridge)
	if len(want) == 0 {
		return wrong, nil
	}
	there, err := c.meters(ctx, bridge)
	for number, want := range want {
		if there[number] != want {
			wrong = append(wrong, fmt.Sprintf("meter %d must have %s, got %.60q", number, want, there[number]))
		}
	}
	return wrong, err
}
