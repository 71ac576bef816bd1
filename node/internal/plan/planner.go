package plan

import (
	"net/netip"

	"railwright/node/internal/attachment"
)

// Planner plans the flows of a rail again and again. It keeps those of attachments as long as they do not change. Its answers are those of Flows.
type Planner struct {
	rail Rail
	// bridge is what all kept flows depend on.
	bridge    bridgeFacts
	endpoints kept[endpointKey]
	// count is the number of flows of the last plan.
	count int
}

type bridgeFacts struct {
	uplinks   [2]uint32
	mac       attachment.MAC
	answersND bool
}

// endpointKey is what the flows of an attachment depend on, beside the bridge.
type endpointKey struct {
	port, tenant uint32
	number       uint16
	mac          attachment.MAC
	rate         uint64
	addresses    [2]netip.Addr
}

type memberKey struct {
	prefix netip.Prefix
	number uint32
}

// MemberFlows returns the flows of a member whose tenant has the number, as far as the bridge has any.
func MemberFlows(member Member, number uint32) []Flow {
	return new(flowSet).member(memberKey{member.Prefix, number})
}

// NewPlanner returns a planner of the rail's flows.
func NewPlanner(rail Rail) *Planner { return &Planner{rail: rail} }

// begin begins to plan. What the last plan did not use is forgotten.
func (p *Planner) begin(facts Facts) {
	bridge := bridgeFacts{[2]uint32{facts.UplinkPort, facts.Second.Port}, facts.BridgeMAC, facts.AnswersND}
	if bridge != p.bridge {
		*p = Planner{rail: p.rail, bridge: bridge}
	}
	p.endpoints.begin()
}

func (e endpoint) cacheKey(tenant uint32) endpointKey {
	key := endpointKey{port: e.port, tenant: tenant, number: e.Number, mac: e.MAC, rate: e.MaxRate}
	copy(key.addresses[:], e.Addresses)
	return key
}

// kept holds flows of the last plan and of this one.
type kept[Key comparable] struct{ before, now map[Key][]Flow }

func (k *kept[Key]) begin() { k.before, k.now = k.now, make(map[Key][]Flow, len(k.now)) }

// get returns the flows of the key, made unless the last plan had them.
func (k *kept[Key]) get(key Key, make func() []Flow) []Flow {
	flows, found := k.before[key]
	if !found {
		flows = make()
	}
	k.now[key] = flows
	return flows
}
