package openvswitch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"time"

	"railwright/node/internal/attachment"
	"railwright/node/internal/plan"
)

// Errors of Facts that tell what is surely so; all others may be a moment's.
var (
	// ErrNoBridge: Open vSwitch answers and has no such bridge, so no flow of it either.
	ErrNoBridge = errors.New("Open vSwitch has no bridge")
	// ErrNoUplink: nothing can leave the bridge.
	ErrNoUplink = errors.New("the bridge has no uplink that works")
)

// Facts of a rail's bridge. An error where it is not fit to carry pods, or where Open vSwitch does not answer: what was
// programmed is to stay as it is then.
func (c *Client) Facts(ctx context.Context, rail plan.Rail) (plan.Facts, error) {
	bridge, err := c.known(rail.Bridge)
	if err != nil {
		return plan.Facts{}, err
	}
	for _, tried := range []<-chan struct{}{c.database.tried, bridge.tried} {
		if err := wait(ctx, tried); err != nil {
			return plan.Facts{}, fmt.Errorf("Open vSwitch does not answer for %s: %w", rail.Bridge, err)
		}
	}
	return c.facts(ctx, bridge)
}

func (c *Client) facts(ctx context.Context, bridge *bridge) (plan.Facts, error) {
	read, _, err := c.database.contents(ctx)
	if err != nil {
		return plan.Facts{}, err
	}
	rail := c.rails[bridge.name]
	row, ok := read.bridges[bridge.name]
	if !ok {
		return plan.Facts{}, fmt.Errorf("%w %s; make it: ovs-vsctl add-br %s -- set bridge %s "+
			"fail_mode=secure other-config:hwaddr=MAC", ErrNoBridge, bridge.name, bridge.name, bridge.name)
	}
	face, err := c.host.face(bridge.name)
	if err != nil {
		return plan.Facts{}, fmt.Errorf("%s: %w", bridge.name, err)
	}
	if problems := unfit(row, face); len(problems) > 0 {
		return plan.Facts{}, fmt.Errorf("the bridge %s is not fit for pods: %s", bridge.name, strings.Join(problems, "; "))
	}
	answersND, err := bridge.answersND()
	if err != nil {
		return plan.Facts{}, fmt.Errorf("%s: %w", bridge.name, err)
	}
	ports := read.numbers(row)
	if ports[rail.Uplink] == 0 {
		return plan.Facts{}, fmt.Errorf("%w: the uplink %s is no port of %s that works; ovs-vsctl add-port %s %s, or see the "+
			"interface's error", ErrNoUplink, rail.Uplink, bridge.name, bridge.name, rail.Uplink)
	}
	facts := plan.Facts{
		UplinkPort: ports[rail.Uplink], BridgeMAC: face.mac, HostAddresses: face.addresses, Ports: ports, AnswersND: answersND,
		Userspace: row.DatapathType == "netdev",
	}
	facts.LeafMAC, facts.LeafProblem = bridge.leafMAC(c.host, face, rail.Leaf)
	return facts, nil
}

// unfit says what of the bridge's settings would let packets by our flows, or change under the pods.
func unfit(row bridgeRow, local face) []string {
	var problems []string
	if row.FailMode == nil || *row.FailMode != "secure" {
		problems = append(problems, "without flows it would switch like any other bridge: ovs-vsctl set-fail-mode "+
			row.Name+" secure")
	}
	if len(row.Controllers) > 0 {
		problems = append(problems, "another controller programs it: ovs-vsctl del-controller "+row.Name)
	}
	if len(row.Protocols) > 0 && !slices.Contains(row.Protocols, "OpenFlow14") {
		problems = append(problems, "it does not speak OpenFlow 1.4: ovs-vsctl clear bridge "+row.Name+" protocols")
	}
	if row.OtherConfig["hwaddr"] == "" {
		problems = append(problems, fmt.Sprintf("its MAC address, which pods know as their gateway's, would change with its "+
			"ports: ovs-vsctl set bridge %s other-config:hwaddr=%q", row.Name, local.mac.String()))
	}
	return problems
}

// leafMAC is what the kernel says now. Where it has just forgotten the leaf, the last one stays: to send there harms
// nobody, and the flows need no change when the same leaf is back.
func (b *bridge) leafMAC(host *host, local face, address netip.Addr) (attachment.MAC, string) {
	mac, err := host.leaf(b.name, local, address)
	b.lock.Lock()
	defer b.lock.Unlock()
	if err == nil {
		b.lastLeaf = mac
		return mac, ""
	}
	if b.lastLeaf != (attachment.MAC{}) {
		return b.lastLeaf, ""
	}
	return attachment.MAC{}, err.Error()
}

// looked is what Facts said when compareFacts asked last.
type looked struct {
	facts   plan.Facts
	problem string
}

// factsPause bounds how often facts are compared: a neighbour that comes and goes must not keep us busy.
const factsPause = 10 * time.Millisecond

// compareFacts tells of every bridge for which Facts would say something else than before.
func (c *Client) compareFacts(ctx context.Context) {
	before := map[string]looked{}
	for {
		if wait(ctx, c.doubt) != nil {
			return
		}
		for name, bridge := range c.bridges {
			now := c.lookAt(ctx, bridge)
			old, known := before[name]
			before[name] = now
			if reason := differs(old, now); known && reason != "" && ctx.Err() == nil {
				c.events.post(Event{Bridge: name, Why: reason})
			}
		}
		_ = wait(ctx, after(factsPause))
	}
}

func (c *Client) lookAt(ctx context.Context, bridge *bridge) looked {
	ctx, cancel := context.WithTimeout(ctx, databaseBound)
	defer cancel()
	facts, err := c.facts(ctx, bridge)
	if err != nil {
		return looked{problem: err.Error()}
	}
	return looked{facts: facts}
}

// differs says what is new, in a few words; empty: nothing.
func differs(old, now looked) string {
	switch {
	case now.problem != "" && now.problem != old.problem:
		return now.problem
	case now.problem == "" && old.problem != "":
		return "the bridge is ready"
	case reflect.DeepEqual(old, now):
		return ""
	case !maps.Equal(old.facts.Ports, now.facts.Ports):
		return "its ports changed"
	case old.facts.LeafMAC != now.facts.LeafMAC:
		return fmt.Sprintf("the leaf's MAC address is %v now", now.facts.LeafMAC)
	}
	return "its own interface changed"
}
