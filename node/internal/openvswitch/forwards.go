package openvswitch

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"railwright/node/internal/attachment"
	"railwright/node/internal/plan"
)

// Unreached returns those of an attachment's addresses for which no packet has come from the uplink since their flows
// were added, and sends the leaf a probe for each. A later call shows whether the probes came back.
func (c *Client) Unreached(ctx context.Context, rail plan.Rail, number uint16, addresses []netip.Addr) ([]netip.Addr, error) {
	facts, err := c.Facts(ctx, rail)
	if err != nil {
		return addresses, err
	}
	missing, err := c.withoutPackets(ctx, rail.Bridge, number, addresses)
	if err != nil || len(missing) == 0 {
		return missing, err
	}
	if facts.LeafMAC == (attachment.MAC{}) {
		return missing, errors.New(facts.LeafProblem)
	}
	for _, address := range missing {
		packet := fmt.Sprintf("in_port=CONTROLLER packet=%s actions=output:%d", hex.EncodeToString(plan.Probe(facts, address)), facts.UplinkPort)
		if err := c.ofctl(ctx, rail.Bridge, nil, ignore, "packet-out", packet); err != nil {
			return missing, fmt.Errorf("send probe to leaf of %s for %s: %w", rail.Bridge, address, err)
		}
	}
	return missing, nil
}

// withoutPackets returns the addresses without a packet. The first packet of a flow is counted at once, because
// ovs-vswitchd handles it; those of the datapath are counted later.
func (c *Client) withoutPackets(ctx context.Context, bridge string, number uint16, addresses []netip.Addr) ([]netip.Addr, error) {
	came := map[netip.Addr]bool{}
	table, cookie := plan.ArrivalFlows(number)
	var wrong error
	err := c.ofctl(ctx, bridge, nil, func(line string) {
		_, count, isFlow, err := parseCount(line)
		wrong = errors.Join(wrong, err)
		if !isFlow || count.Packets == 0 {
			return
		}
		fields := strings.FieldsFunc(line, func(letter rune) bool { return letter == ',' || letter == ' ' })
		for _, address := range addresses {
			came[address] = came[address] || slices.Contains(fields, plan.DestinationField(address))
		}
	}, "dump-flows", fmt.Sprintf("table=%d,cookie=%#x/-1", table, cookie))
	if err := errors.Join(err, wrong); err != nil {
		return addresses, fmt.Errorf("count packets from the uplink of %s: %w", bridge, err)
	}
	var missing []netip.Addr
	for _, address := range addresses {
		if !came[address] {
			missing = append(missing, address)
		}
	}
	return missing, nil
}
