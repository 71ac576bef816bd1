package directory

import (
	"cmp"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"time"

	"railwright/node/internal/tenants"
)

// phase is the progress of an address of this node.
type phase string

// The phases. A claim is on disk before its object exists, and leaves the disk after its object.
const (
	intended  phase = "intended"  // its claim may exist
	claimed   phase = "claimed"   // its claim exists; it may be published
	granted   phase = "granted"   // it is published, and what others had published before is known: flows may admit
	withdrawn phase = "withdrawn" // no flow of it is left; it is held for a while
)

// own is an address of this node.
type own struct {
	Tenant string `json:"tenant"`
	Rail   string `json:"rail,omitempty"`
	Owner  string `json:"owner,omitempty"`
	Phase  phase  `json:"phase"`
	// UID and Version are those of the claim object, if known.
	UID     string `json:"uid,omitempty"`
	Version uint64 `json:"version,omitempty"`
	// Lost means that another machine may have the claim, and flows of this one may be left.
	Lost bool `json:"lost,omitempty"`
	// since is when it was withdrawn.
	since time.Time
}

// members are the addresses of a tenant on another node.
type members struct {
	Version   uint64       `json:"version"`
	Epoch     string       `json:"epoch,omitempty"`
	Addresses []netip.Addr `json:"addresses,omitempty"`
	// fault explains why the object cannot be read. Its last readable content does not count.
	fault string
}

// space is what this node has gone by of a tenant's members. It is always what the store had at the version floor.
type space struct {
	floor   uint64
	objects map[string]members
	// mine is the version of this node's own object, 0 if there is none.
	mine uint64
}

// holder is a node that names an address for a tenant. order is when this node first heard of it.
type holder struct {
	tenant, node string
	order        uint64
}

// state is all that a node goes by. It has no I/O, no clock and no lock.
type state struct {
	name  string
	epoch string
	// entered holds all epochs that this node has entered. One that comes back was restored, not raised.
	entered map[string]bool
	owns    map[netip.Addr]*own
	spaces  map[string]*space
	policy  *tenants.Policy
	rules   *tenants.Rules
	pods    []netip.Prefix
	named   map[string]tenants.Namespace
	asked   map[string]uint64 // the question that named answers
	holders map[netip.Addr][]holder
	order   uint64
	// without is a rule that is left out, by tests only.
	without rule

	view
}

func newState(name string, pods []netip.Prefix) *state {
	return &state{
		name: name, pods: pods, owns: map[netip.Addr]*own{}, spaces: map[string]*space{}, named: map[string]tenants.Namespace{}, asked: map[string]uint64{},
		holders: map[netip.Addr][]holder{}, entered: map[string]bool{},
		view: view{version: 1, redrawn: 1, scope: map[string]bool{}, shown: map[netip.Addr]string{}, numbers: map[string]uint32{}},
	}
}

// local returns the tenants with pods here.
func (s *state) local() []string {
	found := map[string]bool{}
	for _, held := range s.owns {
		if held.Phase != withdrawn && !held.Lost {
			found[held.Tenant] = true
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// peers returns the tenants that a tenant is peered with, and the namespaces whose UID must be found out for that.
func (s *state) peers(tenant string) (peers, unknown []string) {
	if s.rules == nil {
		return nil, nil
	}
	display := tenants.Display(tenant)
	self, single := tenants.SingleNamespace(tenant)
	for _, peer := range s.rules.Peers(display) {
		if single {
			named, found := s.named[self]
			if !found {
				unknown = append(unknown, self)
				continue
			}
			if tenants.NamespaceTenant(named) != tenant || !s.rules.Applies(display, peer, named) {
				continue
			}
		}
		name, peerSingle := tenants.SingleNamespace(peer)
		if !peerSingle {
			peers = append(peers, peer)
			continue
		}
		named, found := s.named[name]
		switch {
		case !found:
			unknown = append(unknown, name)
		case s.rules.Applies(display, peer, named):
			peers = append(peers, tenants.NamespaceTenant(named))
		}
	}
	return peers, unknown
}

// wanted returns the namespaces that the peerings of tenants here name.
func (s *state) wanted(rules *tenants.Rules) map[string]bool {
	wanted := map[string]bool{}
	for _, tenant := range s.local() {
		peers := rules.Peers(tenants.Display(tenant))
		if len(peers) == 0 {
			continue
		}
		for _, name := range append(peers[:len(peers):len(peers)], tenants.Display(tenant)) {
			if namespace, single := tenants.SingleNamespace(name); single {
				wanted[namespace] = true
			}
		}
	}
	return wanted
}

// rescope finds the tenants that this node goes by: those with pods here and their peers. It forgets the others.
func (s *state) rescope() {
	scope, open := map[string]bool{}, map[[2]string]bool{}
	for _, tenant := range s.local() {
		scope[tenant] = true
		peers, _ := s.peers(tenant)
		for _, peer := range peers {
			scope[peer] = true
			open[[2]string{min(tenant, peer), max(tenant, peer)}] = true
		}
	}
	pairs := slices.SortedFunc(maps.Keys(open), func(a, b [2]string) int { return cmp.Or(cmp.Compare(a[0], b[0]), cmp.Compare(a[1], b[1])) })
	if maps.Equal(scope, s.scope) && slices.Equal(pairs, s.pairs) {
		return
	}
	before := s.scope
	s.scope, s.pairs = scope, pairs
	for tenant := range before {
		if held := s.spaces[tenant]; !scope[tenant] && held != nil {
			for name := range held.objects {
				s.put(tenant, name, members{})
			}
			delete(s.spaces, tenant)
		}
	}
	for tenant := range scope {
		if s.numbers[tenant] == 0 {
			s.numbers[tenant] = uint32(len(s.numbers) + 1)
		}
		if s.spaces[tenant] == nil {
			s.spaces[tenant] = &space{objects: map[string]members{}}
		}
	}
	s.version++
	s.redrawn = s.version
	for address, held := range s.owns {
		if before[held.Tenant] != scope[held.Tenant] {
			s.show(address)
		}
	}
}

// put replaces what a node publishes for a tenant; without a version that is nothing.
func (s *state) put(tenant, node string, now members) {
	held := s.spaces[tenant]
	before := held.objects[node].Addresses
	if held.objects[node] = now; now.Version == 0 {
		delete(held.objects, node)
	}
	stays := make(map[netip.Addr]bool, len(now.Addresses))
	for _, address := range now.Addresses {
		stays[address] = true
	}
	for _, address := range before {
		if stays[address] {
			delete(stays, address)
			continue
		}
		s.holders[address] = slices.DeleteFunc(s.holders[address], func(h holder) bool { return h.tenant == tenant && h.node == node })
		if len(s.holders[address]) == 0 {
			delete(s.holders, address)
		}
		s.show(address)
	}
	for address := range stays {
		s.holders[address] = append(s.holders[address], holder{tenant, node, s.order})
		s.show(address)
	}
}

// tenantOf returns the tenant that flows take an address for: this node's own, or the one of the node that named it first.
// If it is unknown which did, it is nobody's.
func (s *state) tenantOf(address netip.Addr) string {
	if held := s.owns[address]; held != nil && !held.Lost {
		if held.Phase == granted && s.scope[held.Tenant] {
			return held.Tenant
		}
		if held.Phase == withdrawn {
			return ""
		}
	}
	var first holder
	for _, h := range s.holders[address] {
		switch {
		case first.tenant == "" || h.order < first.order:
			first = h
		case h.order == first.order && h.tenant != first.tenant:
			return ""
		}
	}
	return first.tenant
}

// decode returns the members of an object.
func decode(object tenants.Object) members {
	spec, err := tenants.Decode[tenants.MembersSpec](object)
	if err != nil {
		return members{Version: object.Version, Epoch: spec.Epoch, fault: err.Error()}
	}
	return members{Version: object.Version, Epoch: spec.Epoch, Addresses: spec.Addresses}
}

// learnList takes in a list of a tenant's members, unless this node has gone by a later one.
func (s *state) learnList(tenant string, list tenants.List) {
	held := s.spaces[tenant]
	if held == nil || list.Version < held.floor && s.without != neverBackward {
		return
	}
	held.floor = list.Version
	s.order++
	there := make(map[string]bool, len(list.Objects))
	held.mine = 0
	for _, object := range list.Objects {
		there[object.Name] = true
		s.learn(tenant, object)
	}
	for name, known := range held.objects {
		// Until its node has published in this epoch, what was known before it stays.
		if !there[name] && (known.Epoch == s.epoch || s.epoch == "") {
			s.put(tenant, name, members{})
		}
	}
}

// learnEvent takes in an event of a tenant's members.
func (s *state) learnEvent(tenant string, event tenants.Event) {
	held := s.spaces[tenant]
	if held == nil || event.Object.Version <= held.floor && s.without != neverBackward {
		return
	}
	held.floor = event.Object.Version
	s.order++
	switch name := event.Object.Name; {
	case name == "":
	case !event.Deleted:
		s.learn(tenant, event.Object)
	case name == s.name:
		held.mine = 0
	default:
		s.put(tenant, name, members{})
	}
}

func (s *state) learn(tenant string, object tenants.Object) {
	held := s.spaces[tenant]
	if object.Name == s.name {
		held.mine = object.Version
		return
	}
	if held.objects[object.Name].Version == object.Version {
		return
	}
	read := decode(object)
	if read.fault == "" && read.Epoch != s.epoch && s.without != epochMembers {
		return // it may be older than what its machine holds
	}
	s.put(tenant, object.Name, read)
}

// enter begins an epoch: versions may have gone back. What is known stays until each node has published in it.
func (s *state) enter(epoch string) {
	s.epoch = epoch
	s.entered[epoch] = true
	for _, held := range s.spaces {
		held.floor = 0
	}
}

// settle forgets what nodes published in earlier epochs: all have published in this one, or are off.
func (s *state) settle() {
	for tenant, held := range s.spaces {
		for name, known := range held.objects {
			if known.Epoch != s.epoch {
				s.put(tenant, name, members{})
			}
		}
	}
}

// published returns the addresses that this node publishes for a tenant.
func (s *state) published(tenant string) []netip.Addr {
	found := []netip.Addr{}
	for address, held := range s.owns {
		if held.Tenant == tenant && !held.Lost && (held.Phase == claimed || held.Phase == granted) {
			found = append(found, address)
		}
	}
	slices.SortFunc(found, netip.Addr.Compare)
	return found
}

// lose gives an address up to another machine, and returns what to store.
func (s *state) lose(address netip.Addr) entry {
	held := s.owns[address]
	held.Lost, held.Phase, held.UID = true, intended, ""
	s.show(address)
	return ownEntry(address, held)
}

// permit decides by the policy whether a tenant can have an address.
func (s *state) permit(address netip.Addr, tenant string) error {
	owners := s.rules.Owners(address)
	display := tenants.Display(tenant)
	for _, owner := range owners {
		if owner != display {
			return fmt.Errorf("%w: %s is in a prefix of tenant %s", tenants.ErrTaken, address, owner)
		}
	}
	if _, has := s.rules.Prefixes(display); has && len(owners) == 0 {
		return fmt.Errorf("%w: %s, tenant %s", tenants.ErrOutside, address, display)
	}
	return nil
}

// problems returns problems of single objects, tenants and addresses.
func (s *state) problems() []string {
	var found []string
	if s.policy != nil {
		found = append(found, s.rules.Problems()...)
		for _, fault := range tenants.Beyond(*s.policy, s.pods) {
			found = append(found, fault.Reason)
		}
	}
	for _, tenant := range slices.Sorted(maps.Keys(s.spaces)) {
		for _, name := range slices.Sorted(maps.Keys(s.spaces[tenant].objects)) {
			if fault := s.spaces[tenant].objects[name].fault; fault != "" {
				found = append(found, fmt.Sprintf("members of tenant %s by %s do not count: %s", tenants.Display(tenant), name, fault))
			}
		}
	}
	for _, address := range slices.SortedFunc(maps.Keys(s.owns), netip.Addr.Compare) {
		if s.owns[address].Lost {
			found = append(found, fmt.Sprintf("%s is no longer this node's: it was declared off, and another node has the address", address))
		}
	}
	contested := 0
	for address, all := range s.holders {
		tenant := all[0].tenant
		if held := s.owns[address]; held != nil && !held.Lost {
			tenant = held.Tenant
		}
		if slices.ContainsFunc(all, func(h holder) bool { return h.tenant != tenant }) {
			if contested++; contested <= maxNamed {
				found = append(found, fmt.Sprintf("%s is named for several tenants, by %s and others; the first counts", address, all[0].node))
			}
		}
	}
	return found
}

// maxNamed is the number of addresses or nodes that a message names.
const maxNamed = 5
