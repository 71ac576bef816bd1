package openvswitch

import (
	"context"
	"fmt"
)

// answersMeter is Open vSwitch's own meter for packets whose actions ovs-vswitchd executes itself. Of our flows these
// are the answers to ARP and neighbour solicitations. Their flows cannot have their own meter, which would run after
// the work; this meter drops in the datapath, before the packet reaches ovs-vswitchd.
const answersMeter = "slowpath"

// maxAnswers is a bridge's limit per second and its burst. A kernel asks once a second for each neighbour that it
// resolves, and a pod with a permanent entry never asks.
const maxAnswers = 5000

func answersBand() string { return fmt.Sprintf("rate=%d burst_size=%d", maxAnswers, maxAnswers) }

// limitAnswers limits the answers of a bridge. A datapath without meters answers without a limit; that is logged and
// delays no pod.
func (c *Client) limitAnswers(ctx context.Context, bridge string) {
	there, err := c.namedMeters(ctx, bridge)
	band, found := there[answersMeter]
	if err == nil && band == answersBand() {
		return
	}
	command := "add-meter"
	if found {
		command = "mod-meter"
	}
	if err == nil {
		err = c.ofctl(ctx, bridge, nil, ignore, command,
			fmt.Sprintf("meter=%s,pktps,burst,stats,bands=type=drop,rate=%d,burst_size=%d", answersMeter, maxAnswers, maxAnswers))
	}
	if err != nil {
		c.settings.Log.Warn("answers to ARP and neighbour solicitations are not limited", "bridge", bridge, "cause", err)
	}
}

// checkAnswers describes a wrong limit in a line. It returns nothing if the datapath has no meters.
func (c *Client) checkAnswers(ctx context.Context, bridge string) []string {
	there, err := c.namedMeters(ctx, bridge)
	if band := there[answersMeter]; err == nil && band != answersBand() {
		return []string{fmt.Sprintf("meter %s must have %s, got %.60q", answersMeter, answersBand(), band)}
	}
	return nil
}
