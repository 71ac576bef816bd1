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

// Unreached gives those of an attachment's addresses for which no packet has come by the uplink since their flows were
// made, and sends the leaf one packet for each of them. Who asks again sees whether it came back.
func (c *Client) Unreached(ctx context.Context, rail plan.Rail, number uint16, addresses []netip.Addr) ([]netip.Addr, error) {
	facts, err := c.Facts(ctx, rail)
	if err != nil {
		return addresses, err
	}
	missing, err := c.nothingCame(ctx, rail.Bridge, number, addresses)
	if err != nil || len(missing) == 0 {
		return missing, err
	}
	if facts.LeafMAC == (attachment.MAC{}) {
		return missing, errors.New(facts.LeafProblem)
	}
	for _, address := range missing {
		packet := fmt.Sprintf("in_port=CONTROLLER packet=%s actions=output:%d", hex.EncodeToString(plan.Probe(facts, address)), facts.UplinkPort)
		if err := c.ofctl(ctx, rail.Bridge, "", ignore, "packet-out", packet); err != nil {
			return missing, fmt.Errorf("the leaf of %s cannot be asked for %s: %w", rail.Bridge, address, err)
		}
	}
	return missing, nil
}

// nothingCame for these addresses. The first packet that a flow has is counted at once, for ovs-vswitchd decided it;
// those of the datapath are told to it later.
func (c *Client) nothingCame(ctx context.Context, bridge string, number uint16, addresses []netip.Addr) ([]netip.Addr, error) {
	came := map[netip.Addr]bool{}
	table, cookie := plan.ArrivalFlows(number)
	var wrong error
	err := c.ofctl(ctx, bridge, "", func(line string) {
		_, count, isFlow, err := counted(line)
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
		return addresses, fmt.Errorf("what came for pods by the uplink of %s cannot be told: %w", bridge, err)
	}
	var missing []netip.Addr
	for _, address := range addresses {
		if !came[address] {
			missing = append(missing, address)
		}
	}
	return missing, nil
}
