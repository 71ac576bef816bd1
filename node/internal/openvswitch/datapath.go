package openvswitch

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/vishvananda/netlink"
)

// Datapath lists the flows that the datapaths have cached, and where each runs.
func (c *Client) Datapath(ctx context.Context) ([]CachedFlow, error) {
	read, _, err := c.database.contents(ctx)
	if err != nil {
		return nil, err
	}
	view := datapathView{hardwareOffload: read.open.OtherConfig["hw-offload"] == "true", onSwitch: map[string]bool{}}
	links, err := retryDump(c.host.handle.LinkList)
	if err != nil {
		return nil, fmt.Errorf("list interfaces: %w", err)
	}
	for _, link := range links {
		view.onSwitch[link.Attrs().Name] = link.Attrs().PhysSwitchID != 0
	}
	var names []string
	if err := c.appctl(ctx, func(line string) { names = append(names, strings.TrimSpace(line)) },
		"dpctl/dump-dps"); err != nil {
		return nil, fmt.Errorf("list datapaths: %w", err)
	}
	var flows []CachedFlow
	for _, name := range names {
		view.ports, err = c.datapathPorts(ctx, name)
		if err != nil {
			return nil, err
		}
		view.userspace = strings.HasPrefix(name, "netdev@")
		var wrong error
		err := c.appctl(ctx, func(line string) {
			flow, ok, err := view.read(line)
			wrong = errors.Join(wrong, err)
			if ok {
				flows = append(flows, flow)
			}
		}, "dpctl/dump-flows", "--more", "--no-names", name)
		if err := errors.Join(err, wrong); err != nil {
			return nil, fmt.Errorf("read flows of datapath %s: %w", name, err)
		}
	}
	return flows, nil
}

// retryDump repeats a kernel dump that a concurrent change interrupted.
func retryDump[Item any](list func() ([]Item, error)) ([]Item, error) {
	items, err := list()
	for try := 1; try < 5 && errors.Is(err, netlink.ErrDumpInterrupted); try++ {
		items, err = list()
	}
	return items, err
}

// portLine matches "  port 2: eth0 (internal)". A name contains no blank, but possibly any other character of flow
// syntax, so flows are read with port numbers.
var portLine = regexp.MustCompile(`^\s*port (\d+): (\S+)`)

func (c *Client) datapathPorts(ctx context.Context, datapath string) (map[uint64]string, error) {
	ports := map[uint64]string{}
	err := c.appctl(ctx, func(line string) {
		if parts := portLine.FindStringSubmatch(line); parts != nil {
			number, _ := strconv.ParseUint(parts[1], 10, 32)
			ports[number] = parts[2]
		}
	}, "dpctl/show", datapath)
	if err != nil {
		return nil, fmt.Errorf("read ports of datapath %s: %w", datapath, err)
	}
	return ports, nil
}

// datapathView holds what is needed to interpret a datapath's flows.
type datapathView struct {
	ports           map[uint64]string
	userspace       bool
	hardwareOffload bool
	// onSwitch reports for each interface whether it is a port of a NIC's switch.
	onSwitch map[string]bool
}

// wildcard matches fields that a flow ignores, and identifiers without information.
var (
	wildcard   = regexp.MustCompile(`\w+\(0/0\),|ufid:[0-9a-f-]+, ?|packet_type\(ns=0,id=0\),`)
	inPortWord = regexp.MustCompile(`in_port\((\d+)\)`)
)

// read parses a line of dpctl/dump-flows. ok is false for a line that is not a flow.
func (d datapathView) read(line string) (flow CachedFlow, ok bool, err error) {
	match, rest, found := strings.Cut(line, ", packets:")
	if !found {
		return CachedFlow{}, false, nil
	}
	rest, flow.Actions, found = strings.Cut("packets:"+rest, ", actions:")
	flow.Actions, _, _ = strings.Cut(flow.Actions, ", dp-extra-info:")
	flow.Match = wildcard.ReplaceAllString(strings.TrimSpace(match), "")
	values := map[string]string{}
	for word := range strings.SplitSeq(rest, ", ") {
		name, value, _ := strings.Cut(word, ":")
		values[name] = value
	}
	packets, packetsError := strconv.ParseUint(values["packets"], 10, 64)
	bytes, bytesError := strconv.ParseUint(values["bytes"], 10, 64)
	flow.Packets, flow.Bytes, flow.UsedSeconds = packets, bytes, -1
	var usedError error
	if used := values["used"]; used != "never" {
		flow.UsedSeconds, usedError = strconv.ParseFloat(strings.TrimSuffix(used, "s"), 64)
	}
	if err := errors.Join(packetsError, bytesError, usedError); err != nil || !found {
		return CachedFlow{}, false, fmt.Errorf("parse flow: %.300q", line)
	}
	if parts := inPortWord.FindStringSubmatch(match); parts != nil {
		number, _ := strconv.ParseUint(parts[1], 10, 32)
		flow.InPort = d.ports[number]
	}
	flow.Layer = d.layer(values["dp"])
	flow.Offloaded = values["offloaded"] == "yes"
	flow.Reason = d.reasonFor(flow, values["offloaded"])
	return flow, true, nil
}

// layer returns the name of a flow's layer. OVS prints "ovs" for the kernel's and for its own datapath.
func (d datapathView) layer(offloaded string) string {
	if d.userspace && (offloaded == "ovs" || offloaded == "") {
		return "netdev"
	}
	if offloaded == "" {
		return "ovs"
	}
	return offloaded
}

// slowPath matches OVS's action for a flow whose packets all go to ovs-vswitchd.
var slowPath = regexp.MustCompile(`slow_path\(([a-z0-9,_]*)\)`)

// reasonFor returns why a flow is not in hardware, the most direct cause first, or "".
func (d datapathView) reasonFor(flow CachedFlow, offloaded string) string {
	ipv6Fragment := strings.Contains(flow.Match, "eth_type(0x86dd)") &&
		(strings.Contains(flow.Match, "frag=first") || strings.Contains(flow.Match, "frag=later"))
	switch reason := slowPath.FindStringSubmatch(flow.Actions); {
	case flow.Offloaded:
		return ""
	case reason != nil:
		return "ovs-vswitchd handles each packet (slow path: " + reason[1] + ")"
	case strings.Contains(flow.Actions, "userspace("):
		return "each packet goes to ovs-vswitchd"
	case d.userspace && flow.Layer == "netdev":
		return "the userspace datapath forwards in software"
	case !d.hardwareOffload:
		return "hw-offload is off (ovs-vsctl set Open_vSwitch . other_config:hw-offload=true, then restart Open vSwitch)"
	case offloaded == "partial":
		return "NIC took only a part of the flow"
	case flow.Layer == "tc":
		return "the NIC's driver refused the flow; it runs in tc"
	case ipv6Fragment:
		return "tc cannot match IPv6 fragments"
	}
	if port := d.notOnSwitch(flow); port != "" {
		return fmt.Sprintf("%q is not a port of a NIC in switchdev mode", port)
	}
	return "tc refused the flow; ovs-vswitchd's log says why (ovs-appctl vlog/set netdev_offload_tc:dbg)"
}

// notOnSwitch returns a port of the flow that is not on a NIC's switch.
func (d datapathView) notOnSwitch(flow CachedFlow) string {
	names := []string{flow.InPort}
	for word := range strings.SplitSeq(flow.Actions, ",") {
		if number, err := strconv.ParseUint(word, 10, 32); err == nil {
			names = append(names, d.ports[number])
		}
	}
	for _, name := range names {
		if name != "" && !d.onSwitch[name] {
			return name
		}
	}
	return ""
}
