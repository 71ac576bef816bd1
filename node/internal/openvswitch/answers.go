package openvswitch

import (
	"context"
	"fmt"
)

// answersMeter is Open vSwitch's own meter for packets that ovs-vswitchd handles one by one because of what a flow does with
// them. Of our flows those are the answers to ARP and neighbour solicitations, whose flows cannot have a meter of their
// own: that would come after the work. This one drops in the datapath, before ovs-vswitchd is asked.
const answersMeter = "slowpath"

// mostAnswers a second of a bridge, and at once: a kernel asks once a second for each neighbour that it looks for, and a
// pod with a permanent entry never does.
const mostAnswers = 5000

func answersBand() string { return fmt.Sprintf("rate=%d burst_size=%d", mostAnswers, mostAnswers) }

// boundAnswers of a bridge. A datapath without meters answers without a bound: that is told, and no pod waits for it.
func (c *Client) boundAnswers(ctx context.Context, bridge string) {
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
		err = c.ofctl(ctx, bridge, "", ignore, command,
			fmt.Sprintf("meter=%s,pktps,burst,stats,bands=type=drop,rate=%d,burst_size=%d", answersMeter, mostAnswers, mostAnswers))
	}
	if err != nil {
		c.settings.Log.Warn("answers to ARP and neighbour solicitations are not bounded", "bridge", bridge, "cause", err)
	}
}

// wrongAnswers says what is wrong with the bound, in a line; nothing where the datapath has no meters.
func (c *Client) wrongAnswers(ctx context.Context, bridge string) []string {
	there, err := c.namedMeters(ctx, bridge)
	if band := there[answersMeter]; err == nil && band != answersBand() {
		return []string{fmt.Sprintf("meter %s: want %s, there is %.60q", answersMeter, answersBand(), band)}
	}
	return nil
}
