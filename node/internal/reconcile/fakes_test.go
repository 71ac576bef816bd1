package reconcile

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"slices"
	"sync"

	"railwright/node/internal/announce"
	"railwright/node/internal/attachment"
	"railwright/node/internal/collect"
	"railwright/node/internal/openvswitch"
	"railwright/node/internal/plan"
	"railwright/node/internal/tenants"
)

// The fakes stand in for other programs where order and sharing are looked at; what those programs really do is tried in
// the packages that speak with them, and all together in test/daemon.

// diary of what was done to the outside, in order.
type diary struct {
	mutex sync.Mutex
	lines []string
}

func (diary *diary) write(format string, values ...any) {
	diary.mutex.Lock()
	defer diary.mutex.Unlock()
	diary.lines = append(diary.lines, fmt.Sprintf(format, values...))
}

func (diary *diary) all() []string {
	diary.mutex.Lock()
	defer diary.mutex.Unlock()
	return slices.Clone(diary.lines)
}

func (diary *diary) count(line string) int {
	count := 0
	for _, one := range diary.all() {
		if one == line {
			count++
		}
	}
	return count
}

// fakeSwitch has one bridge for each rail.
type fakeSwitch struct {
	*diary
	mutex  sync.Mutex
	away   error
	ports  map[string]uint32
	flows  map[string]map[plan.Key]plan.Flow
	events chan openvswitch.Event
	// gate holds every Change and Replace up until it is closed or given to; nil: none.
	gate chan struct{}
	// podPorts are those made for pods.
	podPorts []openvswitch.PodPort
}

func (fake *fakeSwitch) set(change func()) {
	fake.mutex.Lock()
	defer fake.mutex.Unlock()
	change()
}

func (fake *fakeSwitch) Facts(_ context.Context, rail plan.Rail) (plan.Facts, error) {
	fake.mutex.Lock()
	defer fake.mutex.Unlock()
	ports := map[string]uint32{}
	for name, port := range fake.ports {
		ports[name] = port
	}
	return plan.Facts{
		UplinkPort: 1, BridgeMAC: attachment.MAC{2, 1, 1, 1, 1, 1}, LeafMAC: attachment.MAC{2, 9, 9, 9, 9, 9}, Ports: ports,
	}, fake.away
}

func (fake *fakeSwitch) BridgeOf(_ context.Context, hostInterface string) (string, error) {
	fake.mutex.Lock()
	defer fake.mutex.Unlock()
	if _, found := fake.ports[hostInterface]; !found {
		return "", errors.New("no such port")
	}
	if hostInterface == "other0" {
		return "br-other", nil
	}
	return "br0", fake.away
}

func (fake *fakeSwitch) Change(ctx context.Context, bridge string, add, remove []plan.Flow) error {
	if err := fake.pass(ctx); err != nil {
		return err
	}
	fake.mutex.Lock()
	defer fake.mutex.Unlock()
	fake.note(bridge, add, remove)
	for _, flow := range remove {
		delete(fake.flows[bridge], flow.Key())
	}
	for _, flow := range add {
		fake.flows[bridge][flow.Key()] = flow
	}
	fake.write("change")
	return nil
}

// note which attachments' flows come and go.
func (fake *fakeSwitch) note(bridge string, add, remove []plan.Flow) {
	for word, flows := range map[string][]plan.Flow{"flows +": add, "flows -": remove} {
		seen := map[uint16]bool{}
		for _, flow := range flows {
			number, _, _ := plan.ParseCookie(flow.Cookie)
			if number != 0 && !seen[number] {
				seen[number] = true
				fake.write("%s%d", word, number)
			}
		}
	}
}

func (fake *fakeSwitch) Replace(ctx context.Context, bridge string, flows []plan.Flow) (int, error) {
	if err := fake.pass(ctx); err != nil {
		return 0, err
	}
	fake.mutex.Lock()
	defer fake.mutex.Unlock()
	add, remove := applied(fake.flows[bridge]).to(flows)
	fake.note(bridge, add, remove)
	fake.flows[bridge] = appliedOf(flows)
	fake.write("replace")
	return len(add) + len(remove), nil
}

func (fake *fakeSwitch) pass(ctx context.Context) error {
	fake.mutex.Lock()
	gate, away := fake.gate, fake.away
	fake.mutex.Unlock()
	if gate != nil {
		select {
		case <-gate:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return away
}

func (fake *fakeSwitch) Differences(_ context.Context, bridge string, flows []plan.Flow) ([]string, error) {
	fake.mutex.Lock()
	defer fake.mutex.Unlock()
	add, remove := applied(fake.flows[bridge]).to(flows)
	var told []string
	for _, flow := range append(add, remove...) {
		told = append(told, flow.Match)
	}
	return told, fake.away
}

func (fake *fakeSwitch) Counters(_ context.Context, bridge string) (map[uint64]openvswitch.Count, error) {
	fake.mutex.Lock()
	defer fake.mutex.Unlock()
	counters := map[uint64]openvswitch.Count{}
	for _, flow := range fake.flows[bridge] {
		count := counters[flow.Cookie]
		count.Flows++
		counters[flow.Cookie] = count
	}
	return counters, fake.away
}

func (fake *fakeSwitch) Datapath(context.Context) ([]openvswitch.CachedFlow, error) {
	return nil, fake.away
}

func (fake *fakeSwitch) PodPorts(context.Context) ([]openvswitch.PodPort, error) {
	return fake.podPorts, fake.away
}

func (fake *fakeSwitch) RemovePort(_ context.Context, hostInterface, netns string) error {
	fake.write("port -%s %s", hostInterface, netns)
	return nil
}

func (fake *fakeSwitch) Events(context.Context) <-chan openvswitch.Event { return fake.events }

// flowsOf an attachment's number on the first bridge.
func (fake *fakeSwitch) flowsOf(number uint16) int {
	fake.mutex.Lock()
	defer fake.mutex.Unlock()
	count := 0
	for _, flow := range fake.flows["br0"] {
		if of, _, _ := plan.ParseCookie(flow.Cookie); of == number {
			count++
		}
	}
	return count
}

// fakeAnnouncer has one table for each rail.
type fakeAnnouncer struct {
	*diary
	mutex  sync.Mutex
	away   error
	silent bool
	tables map[string]prefixes
	events chan announce.Event
}

func (fake *fakeAnnouncer) set(change func()) {
	fake.mutex.Lock()
	defer fake.mutex.Unlock()
	change()
}

func (fake *fakeAnnouncer) Sync(_ context.Context, rail plan.Rail, want []netip.Prefix) (added, removed int, err error) {
	fake.mutex.Lock()
	defer fake.mutex.Unlock()
	if fake.away != nil {
		return 0, 0, fake.away
	}
	table, wanted := fake.tables[rail.Name], prefixesOf(want)
	for prefix := range table {
		if !wanted[prefix] {
			removed++
			fake.write("route -%s", prefix)
		}
	}
	for prefix := range wanted {
		if !table[prefix] {
			added++
			fake.write("route +%s", prefix)
		}
	}
	fake.tables[rail.Name] = wanted
	return added, removed, nil
}

func (fake *fakeAnnouncer) List(_ context.Context, rail plan.Rail) ([]netip.Prefix, error) {
	fake.mutex.Lock()
	defer fake.mutex.Unlock()
	table := fake.tables[rail.Name]
	return table.within(table), fake.away
}

func (fake *fakeAnnouncer) WaitAdvertised(ctx context.Context, rail plan.Rail, wanted []netip.Prefix) error {
	fake.mutex.Lock()
	silent, has := fake.silent, fake.tables[rail.Name].has(wanted)
	fake.mutex.Unlock()
	if silent || !has {
		<-ctx.Done()
		return errors.New("the session is Idle")
	}
	fake.write("advertised %s", wanted[0])
	return nil
}

func (fake *fakeAnnouncer) Session(context.Context, plan.Rail) (announce.Session, error) {
	return announce.Session{Peer: "leaf", Established: true, State: "Established"}, fake.away
}

func (fake *fakeAnnouncer) Events(context.Context) <-chan announce.Event { return fake.events }

// fakeDirectory lets every namespace be a tenant.
type fakeDirectory struct {
	*diary
	mutex   sync.Mutex
	version uint64
	changed chan struct{}
	refuse  error
	owners  map[netip.Addr]tenants.Claim
	tenant  map[string]string
}

func (fake *fakeDirectory) change(change func()) {
	fake.mutex.Lock()
	defer fake.mutex.Unlock()
	change()
	fake.version++
	close(fake.changed)
	fake.changed = make(chan struct{})
}

func (fake *fakeDirectory) TenantOf(_ context.Context, namespace string) (string, error) {
	fake.mutex.Lock()
	defer fake.mutex.Unlock()
	if tenant, grouped := fake.tenant[namespace]; grouped {
		return tenant, nil
	}
	return "ns:" + namespace, nil
}

func (fake *fakeDirectory) Claim(_ context.Context, claim tenants.Claim) error {
	fake.mutex.Lock()
	refuse := fake.refuse
	fake.mutex.Unlock()
	if refuse != nil {
		return refuse
	}
	fake.write("claim %s %s", claim.Addresses[0], claim.Tenant)
	fake.change(func() {
		for _, address := range claim.Addresses {
			fake.owners[address] = claim
		}
	})
	return nil
}

func (fake *fakeDirectory) Release(_ context.Context, addresses []netip.Addr) error {
	fake.write("release %s", addresses[0])
	fake.change(func() {
		for _, address := range addresses {
			delete(fake.owners, address)
		}
	})
	return nil
}

func (fake *fakeDirectory) Retain(_ context.Context, owners []string) error {
	fake.write("retain %d", len(owners))
	return nil
}

func (fake *fakeDirectory) WaitConfirmed(context.Context, []netip.Addr) []string {
	return []string{"node-9"}
}

func (fake *fakeDirectory) View(local []string) (plan.Tenants, uint64, <-chan struct{}) {
	fake.mutex.Lock()
	defer fake.mutex.Unlock()
	view := plan.Tenants{Numbers: map[string]uint32{}}
	for i, tenant := range local {
		view.Numbers[tenant] = uint32(i + 1)
	}
	for address, claim := range fake.owners {
		if view.Numbers[claim.Tenant] != 0 {
			view.Members = append(view.Members, plan.Member{
				Prefix: netip.PrefixFrom(address, address.BitLen()), Tenant: claim.Tenant,
			})
		}
	}
	return view, fake.version, fake.changed
}

func (fake *fakeDirectory) Confirm(_ context.Context, version uint64) error {
	fake.write("confirm %d", version)
	return nil
}

func (fake *fakeDirectory) Problems() []string { return nil }

// fakeLinks are all there and up.
type fakeLinks struct{}

func (fakeLinks) Up(string) (bool, error) { return true, nil }

func (fakeLinks) Gone(string) bool { return false }

// fakePods live unless they are said to be gone.
type fakePods struct {
	mutex sync.Mutex
	lives map[string]collect.Life
	boot  string
}

func (fake *fakePods) set(netns string, life collect.Life) {
	fake.mutex.Lock()
	defer fake.mutex.Unlock()
	fake.lives[netns] = life
}

func (fake *fakePods) Boot() string { return fake.boot }

func (fake *fakePods) Identify(path string) (uint64, error) {
	if path == "/run/netns/none" {
		return 0, fmt.Errorf("no such namespace: %w", fs.ErrNotExist)
	}
	return 42, nil
}

func (fake *fakePods) Life(record attachment.Attachment, boot string) (collect.Life, string) {
	fake.mutex.Lock()
	defer fake.mutex.Unlock()
	if boot != fake.boot {
		return collect.Gone, "another boot"
	}
	if life, said := fake.lives[record.Netns]; said {
		return life, "as the test says"
	}
	return collect.Alive, ""
}
