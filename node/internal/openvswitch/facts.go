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

// Errors of Facts that describe a certain state; all other errors may be temporary.
var (
	// ErrNoBridge is returned when Open vSwitch has no such bridge, and so none of its flows.
	ErrNoBridge = errors.New("Open vSwitch has no bridge")
	// ErrNoUplink is returned when nothing can leave the bridge.
	ErrNoUplink = errors.New("bridge has no working uplink")
)

// Facts returns the state of a rail's bridge. It fails if the bridge is unfit for pods or Open vSwitch does not reply;
// the flows must then stay as they are.
func (c *Client) Facts(ctx context.Context, rail plan.Rail) (plan.Facts, error) {
	bridge, err := c.knownBridge(rail.Bridge)
	if err != nil {
		return plan.Facts{}, err
	}
	for _, tried := range []<-chan struct{}{c.database.tried, bridge.tried} {
		if err := wait(ctx, tried); err != nil {
			return plan.Facts{}, fmt.Errorf("Open vSwitch does not reply for %s: %w", rail.Bridge, err)
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
		return plan.Facts{}, fmt.Errorf("%w %s; create it: ovs-vsctl add-br %s -- set bridge %s "+
			"fail_mode=secure other-config:hwaddr=MAC", ErrNoBridge, bridge.name, bridge.name, bridge.name)
	}
	face, err := c.host.face(bridge.name)
	if err != nil {
		return plan.Facts{}, fmt.Errorf("bridge %s: %w", bridge.name, err)
	}
	if problems := unfit(row, face); len(problems) > 0 {
		return plan.Facts{}, fmt.Errorf("bridge %s is unfit for pods: %s", bridge.name, strings.Join(problems, "; "))
	}
	answersND, err := bridge.answersND()
	if err != nil {
		return plan.Facts{}, fmt.Errorf("bridge %s: %w", bridge.name, err)
	}
	ports := read.numbers(row)
	if ports[rail.Uplink] == 0 && ports[rail.Second] == 0 {
		return plan.Facts{}, fmt.Errorf("%w: uplink %s is not a working port of %s; run ovs-vsctl add-port %s %s, or check the "+
			"interface's error", ErrNoUplink, rail.Uplink, bridge.name, bridge.name, rail.Uplink)
	}
	facts := plan.Facts{
		UplinkPort: ports[rail.Uplink], BridgeMAC: face.mac, HostAddresses: face.addresses, Ports: ports, AnswersND: answersND,
		Userspace: row.DatapathType == "netdev",
	}
	facts.LeafMAC, facts.LeafProblem = bridge.leafMAC(c.host, face, rail.Leaf)
	if rail.Second != "" {
		facts.LeafDown = !c.host.up(rail.Uplink)
		facts.Second = plan.Way{Port: ports[rail.Second], Down: !c.host.up(rail.Second)}
		facts.Second.Leaf, _ = bridge.leafMAC(c.host, face, rail.SecondLeaf)
	}
	if facts.UplinkPort == 0 { // the first NIC is gone
		facts.UplinkPort, facts.LeafMAC, facts.LeafDown = facts.Second.Port, facts.Second.Leaf, facts.Second.Down
		facts.Second = plan.Way{}
	}
	return facts, nil
}

// unfit returns the settings of the bridge that would let packets bypass our flows, or change under the pods.
func unfit(row bridgeRow, local face) []string {
	var problems []string
	if row.FailMode == nil || *row.FailMode != "secure" {
		problems = append(problems, "fail_mode must be secure, or it would switch packets without flows: ovs-vsctl set-fail-mode "+
			row.Name+" secure")
	}
	if len(row.Controllers) > 0 {
		problems = append(problems, "it must not have a controller: ovs-vsctl del-controller "+row.Name)
	}
	if len(row.Protocols) > 0 && !slices.Contains(row.Protocols, "OpenFlow14") {
		problems = append(problems, "protocols must include OpenFlow14: ovs-vsctl clear bridge "+row.Name+" protocols")
	}
	if row.OtherConfig["hwaddr"] == "" {
		problems = append(problems, fmt.Sprintf("hwaddr must be set, or the MAC address of the pods' gateway changes with the "+
			"ports: ovs-vsctl set bridge %s other-config:hwaddr=%q", row.Name, local.mac.String()))
	}
	return problems
}

// leafMAC returns the leaf's MAC address from the kernel. If the kernel has just forgotten it, the last one remains:
// sending there is harmless, and the flows need no change when the leaf is back.
func (b *bridge) leafMAC(host *host, local face, address netip.Addr) (attachment.MAC, string) {
	mac, err := host.leaf(b.name, local, address)
	b.lock.Lock()
	defer b.lock.Unlock()
	if err == nil {
		b.lastLeaf[address] = mac
		return mac, ""
	}
	if last, known := b.lastLeaf[address]; known {
		return last, ""
	}
	return attachment.MAC{}, err.Error()
}

// lookResult is a result of Facts, or the problem that prevented it.
type lookResult struct {
	facts   plan.Facts
	problem string
}

// factsPause limits how often facts are compared, so that a flapping neighbour does not keep the daemon busy.
const factsPause = 10 * time.Millisecond

// compareFacts reports every bridge whose facts have changed.
func (c *Client) compareFacts(ctx context.Context) {
	before := map[string]lookResult{}
	for {
		if wait(ctx, c.doubt) != nil {
			return
		}
		for name, bridge := range c.bridges {
			now := c.lookAt(ctx, bridge)
			old, known := before[name]
			before[name] = now
			if reason := describeDifference(old, now); known && reason != "" && ctx.Err() == nil {
				c.events.post(Event{Bridge: name, Reason: reason})
			}
		}
		_ = wait(ctx, afterPause(factsPause))
	}
}

func (c *Client) lookAt(ctx context.Context, bridge *bridge) lookResult {
	ctx, cancel := context.WithTimeout(ctx, databaseBound)
	defer cancel()
	facts, err := c.facts(ctx, bridge)
	if err != nil {
		return lookResult{problem: err.Error()}
	}
	return lookResult{facts: facts}
}

// describeDifference describes the first change, or returns "".
func describeDifference(old, now lookResult) string {
	switch {
	case now.problem != "" && now.problem != old.problem:
		return now.problem
	case now.problem == "" && old.problem != "":
		return "bridge is ready"
	case reflect.DeepEqual(old, now):
		return ""
	case !maps.Equal(old.facts.Ports, now.facts.Ports):
		return "ports changed"
	case old.facts.LeafDown != now.facts.LeafDown || old.facts.Second != now.facts.Second:
		return "an uplink changed"
	case old.facts.LeafMAC != now.facts.LeafMAC:
		return fmt.Sprintf("MAC address of the leaf is now %v", now.facts.LeafMAC)
	}
	return "interface of the bridge changed"
}
