package reconcile

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"sync"

	"railwright/node/internal/announce"
	"railwright/node/internal/attachment"
	"railwright/node/internal/openvswitch"
	"railwright/node/internal/plan"
	"railwright/node/internal/tenants"
)

// The fakes replace other programs where only order and sharing matter. The real programs are tested in the packages
// that use them, and all together in test/lab.

// fakeSwitch has a bridge for each rail.
type fakeSwitch struct {
	*diary
	mutex sync.Mutex
	away  error
	// missing is the error of br0's facts.
	missing error
	ports   map[string]uint32
	flows   map[string]map[plan.Key]plan.Flow
	events  chan openvswitch.Event
	// gate blocks Change and Replace until it is closed or receives. nil does not block.
	gate chan struct{}
	// counting is called before Counters returns, if set.
	counting func(context.Context) error
	// looks counts the calls of Facts by bridge.
	looks    map[string]int
	deaf     int                   // number of probes that the leaf will not forward
	podPorts []openvswitch.PodPort // ports created for pods
}

func (f *fakeSwitch) set(change func()) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	change()
}

func (f *fakeSwitch) Facts(_ context.Context, rail plan.Rail) (plan.Facts, error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.looks[rail.Bridge]++
	ports := map[string]uint32{}
	for name, port := range f.ports {
		ports[name] = port
	}
	if rail.Bridge == "br0" && f.missing != nil {
		return plan.Facts{}, f.missing
	}
	return plan.Facts{
		UplinkPort: 1, BridgeMAC: attachment.MAC{2, 1, 1, 1, 1, 1}, LeafMAC: attachment.MAC{2, 9, 9, 9, 9, 9}, Ports: ports,
	}, f.away
}

func (f *fakeSwitch) BridgeOf(_ context.Context, hostInterface string) (string, error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if _, found := f.ports[hostInterface]; !found {
		return "", errors.New("no such port")
	}
	if hostInterface == "other0" {
		return "br-other", nil
	}
	return "br0", f.away
}

// CheckRate refuses rates above 34 Gbit/s, as Open vSwitch 3.1 does.
func (f *fakeSwitch) CheckRate(_ context.Context, _ string, rate uint64) error {
	if rate > 34e9 {
		return openvswitch.ErrRate
	}
	return nil
}

func (f *fakeSwitch) Change(ctx context.Context, bridge string, add, remove []plan.Flow) error {
	if err := f.pass(ctx); err != nil {
		return err
	}
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.note(bridge, add, remove)
	for _, flow := range remove {
		delete(f.flows[bridge], flow.Key())
	}
	for _, flow := range add {
		f.flows[bridge][flow.Key()] = flow
	}
	f.write("change")
	return nil
}

// note records the attachments whose flows are added and removed.
func (f *fakeSwitch) note(bridge string, add, remove []plan.Flow) {
	for word, flows := range map[string][]plan.Flow{"flows +": add, "flows -": remove} {
		seen := map[uint16]bool{}
		for _, flow := range flows {
			number, _, _ := plan.ParseCookie(flow.Cookie)
			if number != 0 && !seen[number] {
				seen[number] = true
				f.write("%s%d", word, number)
			}
		}
	}
}

func (f *fakeSwitch) Replace(ctx context.Context, bridge string, flows []plan.Flow) (int, error) {
	if err := f.pass(ctx); err != nil {
		return 0, err
	}
	f.mutex.Lock()
	defer f.mutex.Unlock()
	add, remove := applied(f.flows[bridge]).difference(appliedOf(flows))
	f.note(bridge, add, remove)
	f.flows[bridge] = appliedOf(flows)
	f.write("replace")
	return len(add) + len(remove), nil
}

func (f *fakeSwitch) pass(ctx context.Context) error {
	f.mutex.Lock()
	gate, away := f.gate, f.away
	f.mutex.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return away
}

func (f *fakeSwitch) Settle(_ context.Context, rounds int) error {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.write("settle %d", rounds)
	return f.away
}

func (f *fakeSwitch) Differences(_ context.Context, bridge string, flows []plan.Flow) ([]string, error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	add, remove := applied(f.flows[bridge]).difference(appliedOf(flows))
	var entries []string
	for _, flow := range append(add, remove...) {
		entries = append(entries, flow.Match)
	}
	return entries, f.away
}

func (f *fakeSwitch) Counters(ctx context.Context, bridge string) (map[uint64]openvswitch.Count, error) {
	f.mutex.Lock()
	counting := f.counting
	f.mutex.Unlock()
	if counting != nil {
		if err := counting(ctx); err != nil {
			return nil, err
		}
	}
	f.mutex.Lock()
	defer f.mutex.Unlock()
	counters := map[uint64]openvswitch.Count{}
	for _, flow := range f.flows[bridge] {
		count := counters[flow.Cookie]
		count.Flows++
		counters[flow.Cookie] = count
	}
	return counters, f.away
}

func (f *fakeSwitch) Datapath(context.Context) ([]openvswitch.CachedFlow, error) {
	return nil, f.away
}

func (f *fakeSwitch) PodPorts(context.Context) ([]openvswitch.PodPort, error) {
	return f.podPorts, f.away
}

func (f *fakeSwitch) RemovePort(_ context.Context, hostInterface, netns string) error {
	f.write("port -%s %s", hostInterface, netns)
	return nil
}

func (f *fakeSwitch) Events(context.Context) <-chan openvswitch.Event { return f.events }

// flowsOf counts an attachment's flows on the first bridge.
func (f *fakeSwitch) flowsOf(number uint16) int {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	count := 0
	for _, flow := range f.flows["br0"] {
		if n, _, _ := plan.ParseCookie(flow.Cookie); n == number {
			count++
		}
	}
	return count
}

// fakeAnnouncer has a table for each rail.
type fakeAnnouncer struct {
	*diary
	mutex  sync.Mutex
	away   error
	silent bool
	// kept means that the leaf may still have stale routes.
	kept   bool
	tables map[string]prefixes
	events chan announce.Event
}

func (f *fakeAnnouncer) set(change func()) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	change()
}

func (f *fakeAnnouncer) Sync(_ context.Context, rail plan.Rail, want []netip.Prefix) (added, removed int, err error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if f.away != nil {
		return 0, 0, f.away
	}
	table, wanted := f.tables[rail.Name], prefixesOf(want)
	for prefix := range table {
		if !wanted[prefix] {
			removed++
			f.write("route -%s", prefix)
		}
	}
	for prefix := range wanted {
		if !table[prefix] {
			added++
			f.write("route +%s", prefix)
		}
	}
	f.tables[rail.Name] = wanted
	return added, removed, nil
}

func (f *fakeAnnouncer) List(_ context.Context, rail plan.Rail) ([]netip.Prefix, error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	table := f.tables[rail.Name]
	return table.intersect(table), f.away
}

func (f *fakeAnnouncer) WaitAdvertised(ctx context.Context, rail plan.Rail, want []netip.Prefix) error {
	f.mutex.Lock()
	silent, has := f.silent, f.tables[rail.Name].hasAll(want)
	f.mutex.Unlock()
	if silent || !has {
		<-ctx.Done()
		return errors.New("session is Idle")
	}
	f.write("advertised %s", want[0])
	return nil
}

func (f *fakeAnnouncer) WaitWithdrawn(_ context.Context, rail plan.Rail, prefixes []netip.Prefix) error {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if f.kept {
		return errors.New("session is Idle, and the leaf may keep its routes")
	}
	f.write("withdrawn %s", prefixes[0])
	return nil
}

func (f *fakeAnnouncer) Session(context.Context, plan.Rail) (announce.Session, error) {
	return announce.Session{Peer: "leaf", Established: true, State: "Established"}, f.away
}

func (f *fakeAnnouncer) Events(context.Context) <-chan announce.Event { return f.events }

// fakeDirectory makes every namespace a tenant.
type fakeDirectory struct {
	*diary
	mutex   sync.Mutex
	version uint64
	changed chan struct{}
	refuse  error
	stopped []string
	owners  map[netip.Addr]tenants.Claim
	tenant  map[string]string
	numbers map[string]uint32
	// views holds the members of each version.
	views map[uint64]map[netip.Addr]string
}

func newFakeDirectory(diary *diary) *fakeDirectory {
	made := &fakeDirectory{
		diary: diary, changed: make(chan struct{}), owners: map[netip.Addr]tenants.Claim{}, tenant: map[string]string{},
		numbers: map[string]uint32{}, views: map[uint64]map[netip.Addr]string{},
	}
	made.change(func() {})
	return made
}

func (f *fakeDirectory) change(change func()) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	change()
	f.version++
	view := map[netip.Addr]string{}
	for address, claim := range f.owners {
		view[address] = claim.Tenant
		if f.numbers[claim.Tenant] == 0 {
			f.numbers[claim.Tenant] = uint32(len(f.numbers) + 1)
		}
	}
	f.views[f.version] = view
	close(f.changed)
	f.changed = make(chan struct{})
}

func (f *fakeDirectory) TenantOf(_ context.Context, namespace string) (string, error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if tenant, grouped := f.tenant[namespace]; grouped {
		return tenant, nil
	}
	return "ns:" + namespace, nil
}

func (f *fakeDirectory) Regroup(ctx context.Context, namespace, _ string) (string, error) {
	return f.TenantOf(ctx, namespace)
}

func (f *fakeDirectory) Claim(_ context.Context, claim tenants.Claim) error {
	f.mutex.Lock()
	refuse := f.refuse
	f.mutex.Unlock()
	if refuse != nil {
		return refuse
	}
	f.write("claim %s %s", claim.Addresses[0], claim.Tenant)
	f.change(func() {
		for _, address := range claim.Addresses {
			f.owners[address] = claim
		}
	})
	return nil
}

func (f *fakeDirectory) Withdraw(_ context.Context, addresses []netip.Addr) error {
	f.write("withdraw %s", addresses[0])
	return nil
}

func (f *fakeDirectory) Release(_ context.Context, addresses []netip.Addr) error {
	f.write("release %s", addresses[0])
	f.change(func() {
		for _, address := range addresses {
			delete(f.owners, address)
		}
	})
	return nil
}

func (f *fakeDirectory) Retain(_ context.Context, owners []string) error {
	f.write("retain %d", len(owners))
	return nil
}

func (f *fakeDirectory) Holds(addresses []netip.Addr) bool {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return !slices.ContainsFunc(addresses, func(address netip.Addr) bool { return f.owners[address].Tenant == "" })
}

func (f *fakeDirectory) Since(version uint64) tenants.Change {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	before, known := f.views[version]
	change := tenants.Change{Version: f.version, Whole: !known, Redrawn: !known, Numbers: f.numbers, Members: len(f.owners)}
	for address, tenant := range f.views[f.version] {
		if before[address] != tenant {
			change.Added = append(change.Added, plan.Member{Prefix: tenants.Host(address), Tenant: tenant})
		}
	}
	for address, tenant := range before {
		if f.views[f.version][address] == "" {
			change.Removed = append(change.Removed, plan.Member{Prefix: tenants.Host(address), Tenant: tenant})
		}
	}
	return change
}

func (f *fakeDirectory) Version() uint64 {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.version
}

func (f *fakeDirectory) Changed() <-chan struct{} {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.changed
}

func (f *fakeDirectory) Stopped() []string {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.stopped
}

func (f *fakeDirectory) Problems() []string { return []string{"tenant b is ignored"} }

func (f *fakeDirectory) Held() int { return 0 }

// fakeNode holds what was last reported about the rails.
type fakeNode struct {
	mutex    sync.Mutex
	reported bool
	problems []string
}

func (f *fakeNode) Report(problems []string) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.reported, f.problems = true, problems
}

// down returns the number of problems, or -1 before the first report.
func (f *fakeNode) down() int {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	if !f.reported {
		return -1
	}
	return len(f.problems)
}
