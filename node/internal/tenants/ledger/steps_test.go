package ledger

import (
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"railwright/node/internal/tenants"
)

// step lets one event happen.
func (w *world) step() {
	w.now = w.now.Add(time.Duration(w.random.IntN(w.pace)) * time.Millisecond)
	m := w.machines[w.random.IntN(len(w.machines))]
	choice := w.random.IntN(100)
	switch {
	case w.random.IntN(w.quiet) == 0:
		w.calamity(m)
	case !m.on:
		if choice < 20 {
			w.declareOff(m)
		} else if choice < 30 {
			m.on, m.online = true, w.random.IntN(3) > 0
			w.tell("%s is switched on", m.name)
		}
	case !m.up:
		if choice < 60 {
			w.boot(m)
		}
	case choice < 7:
		w.ask(m)
	case choice < 17:
		w.decide(m)
	case choice < 20:
		w.end(m)
	case choice < 32:
		w.hear(m)
	case choice < 72:
		w.exchange(m)
	case choice < 93:
		w.program(m)
	default:
		m.ledger.Expire(w.now)
		m.ledger.Settle(w.now)
		w.remove(m)
	}
	w.check()
}

// calamity cuts off, kills, switches off or wipes a machine, or changes the policy. Each world has its own mix.
func (w *world) calamity(m *machine) {
	total := 0
	for _, weight := range w.weights {
		total += weight
	}
	kind, drawn := 0, w.random.IntN(total)
	for drawn >= w.weights[kind] {
		drawn -= w.weights[kind]
		kind++
	}
	switch {
	case kind == 0:
		m.online = !m.online
		w.tell("%s is online: %v", m.name, m.online)
	case kind == 1 && m.up:
		w.tell("%s's daemon is killed", m.name)
		m.crash()
	case kind == 2 && m.on:
		w.switchOff(m)
		if w.random.IntN(3) == 0 {
			m.ownState, m.knownState = nil, nil
			w.tell("%s is wiped", m.name)
		}
	case kind == 3 && w.prefixes:
		w.policies = append(w.policies, drawPolicy(w.random, true))
		w.tell("policy %v", *w.policies[len(w.policies)-1])
	case kind == 4 && m.up:
		w.tell("%s loses what it knew, and is killed", m.name)
		m.knownState = nil
		m.crash()
	}
}

func (w *world) switchOff(m *machine) {
	for address := range m.pods {
		w.stop(m, address)
	}
	m.reset()
	m.on = false
	w.tell("%s is switched off", m.name)
}

// declareOff declares a machine that is off as off; with misuse it also deletes records without asking the others.
func (w *world) declareOff(m *machine) {
	for _, s := range w.draining {
		if w.now.Before(s.until) {
			return
		}
	}
	for _, id := range w.order {
		record := w.latest(id)
		if record == nil || record.Node != m.name || record.Leaving {
			continue
		}
		if w.misuse && w.random.IntN(2) == 0 {
			w.tell("record %s is deleted by hand", id)
			w.put(id, nil)
			continue
		}
		leaving := *record
		leaving.Leaving = true
		w.tell("record %s is leaving", id)
		w.put(id, &leaving)
	}
}

func (w *world) ask(m *machine) {
	address := simulated[w.random.IntN(len(simulated))]
	if _, taken := m.pods[address]; taken || m.asking[address].Tenant != "" {
		return
	}
	tenant := simulatedTenants[w.random.IntN(len(simulatedTenants))]
	claim := tenants.Claim{Tenant: tenant, Rail: "rail0", Owner: fmt.Sprintf("net/%d/%s", len(w.story), m.name), Addresses: []netip.Addr{address}}
	if err := m.ledger.Begin(claim, w.now); err != nil {
		return
	}
	m.asking[address] = claim
	w.tell("%s claims %s for %s", m.name, address, tenant)
}

func (w *world) decide(m *machine) {
	for _, address := range slices.SortedFunc(maps.Keys(m.asking), netip.Addr.Compare) {
		claim := m.asking[address]
		blocked := m.ledger.Decide(claim, w.now)
		if blocked == nil {
			if m.ledger.claims[address].byPrefix {
				w.save(m, m.ledger.Draft(w.now))
			}
			m.pods[address] = pod{claim.Tenant, claim.Owner}
			w.granted++
			if last := w.lastOf[address]; last != "" && last != claim.Tenant {
				w.reused++
			}
			w.lastOf[address] = claim.Tenant
			w.tell("%s runs a pod of %s with %s", m.name, claim.Tenant, address)
			delete(m.asking, address)
		} else if blocked.Final || w.random.IntN(60) == 0 {
			m.ledger.Withdraw(claim, w.now)
			m.ledger.Release(claim.Addresses, w.now)
			w.tell("%s withdraws %s for %s: %v", m.name, address, claim.Tenant, blocked)
			delete(m.asking, address)
		}
	}
}

func (w *world) end(m *machine) {
	for _, address := range slices.SortedFunc(maps.Keys(m.pods), netip.Addr.Compare) {
		if w.random.IntN(2) == 0 {
			w.tell("%s's pod of %s with %s ends", m.name, m.pods[address].tenant, address)
			w.stop(m, address)
			m.ledger.Release([]netip.Addr{address}, w.now)
			return
		}
	}
}

// hear delivers a few records, each arbitrarily late.
func (w *world) hear(m *machine) {
	if !m.online {
		return
	}
	for _, id := range w.order {
		if w.random.IntN(2) == 0 && m.cursor[id] < len(w.store[id]) {
			m.cursor[id] += 1 + w.random.IntN(len(w.store[id])-m.cursor[id])
		}
	}
	if w.random.IntN(2) == 0 {
		m.policy = max(m.policy, w.random.IntN(len(w.policies)))
	}
	m.ledger.Learn(w.snapshot(m), 0, w.now)
	w.noticeEviction(m)
}

func (w *world) noticeEviction(m *machine) {
	if m.ledger.Evicted() && m.publishing == nil && w.random.IntN(2) == 0 {
		m.reading = nil
		m.ledger.Register(w.now)
		w.tell("%s registers as %s", m.name, m.ledger.ID())
	}
}

func (w *world) save(m *machine, record *tenants.Record) {
	m.ownState = mustMarshal(w.t, m.ledger.Own(record))
}

// exchange advances the current publication or read by a step.
func (w *world) exchange(m *machine) {
	switch {
	case m.publishing != nil && m.published:
		m.ledger.Acked(m.publishing, w.now)
		m.publishing = nil
	case m.publishing != nil:
		w.write(m)
	case m.reading != nil:
		m.ledger.Learn(*m.reading, m.readingSince, w.now)
		m.reading = nil
		w.noticeEviction(m)
	case m.ledger.Evicted():
		w.noticeEviction(m)
	case !m.ledger.Due().IsZero() && !w.now.Before(m.ledger.Due()) && (!m.ledger.NeedsReading() || w.random.IntN(2) != 0):
		m.knownState = mustMarshal(w.t, m.ledger.Known())
		m.publishing, m.published = m.ledger.Record(w.now), false
		w.save(m, m.publishing)
	case m.ledger.NeedsReading() && m.online:
		m.readingSince = m.ledger.Published()
		for id, states := range w.store {
			m.cursor[id] = len(states)
		}
		snapshot := w.snapshot(m)
		m.reading = &snapshot
	}
}

// write writes the record to the store, or fails; the reply reaches the machine, or is lost.
func (w *world) write(m *machine) {
	id := m.publishing.ID()
	stored := w.latest(id)
	switch {
	case !m.online || w.random.IntN(10) == 0:
		m.publishing = nil
		m.ledger.Failed(w.now)
	case stored == nil && w.store[id] != nil || stored != nil && stored.Leaving:
		m.publishing = nil
		m.ledger.Evict(w.now)
	default:
		w.put(id, m.publishing)
		w.tell("%s published %d: %v %v seen %v", id, m.publishing.Generation, m.publishing.Addresses, m.publishing.Released, m.publishing.Seen)
		if w.random.IntN(10) == 0 {
			m.publishing = nil
			m.ledger.Failed(w.now)
			return
		}
		m.published = true
	}
}

// program advances the switch by a step: take a view, program it, confirm it.
func (w *world) program(m *machine) {
	switch {
	case m.installed > 0:
		m.ledger.Confirm(m.installed, w.now)
		m.installed = 0
	case m.planned != nil:
		m.flows, m.installed, m.planned = *m.planned, m.plannedVersion, nil
		w.tell("%s has flows %d: %v", m.name, m.installed, m.flows.Members)
	default:
		local := []string{}
		for _, pod := range m.pods {
			local = append(local, pod.tenant)
		}
		view, version := m.ledger.View(local, w.now)
		m.planned, m.plannedVersion = &view, version
	}
}

func (w *world) remove(m *machine) {
	if !m.online {
		return
	}
	for _, record := range m.ledger.Departed(w.now) {
		if w.latest(record.ID()) != nil {
			w.tell("%s removes %s", m.name, record.ID())
			w.put(record.ID(), nil)
		}
	}
}

// calm lets everything settle, with all machines on, online and up to date.
func (w *world) calm() {
	for _, m := range w.machines {
		m.on, m.online = true, true
		if !m.up {
			w.boot(m)
		}
	}
	for range 60 {
		w.now = w.now.Add(300 * time.Millisecond)
		for _, m := range w.machines {
			for id, states := range w.store {
				m.cursor[id] = len(states)
			}
			m.policy = len(w.policies) - 1
			m.ledger.Learn(w.snapshot(m), 0, w.now)
			for range 6 {
				w.exchange(m)
				w.program(m)
				w.check()
			}
			w.decide(m)
			m.ledger.Expire(w.now)
			m.ledger.Settle(w.now)
			w.remove(m)
			if !m.ledger.Due().IsZero() {
				m.ledger.want(w.now)
			}
		}
	}
}

// TestNoScheduleLetsATenantReachAnother draws schedules and checks after each step. RAILWRIGHT_SCHEDULES sets their
// number.
func TestNoScheduleLetsATenantReachAnother(t *testing.T) {
	schedules, steps := uint64(120), 4000
	if text := os.Getenv("RAILWRIGHT_SCHEDULES"); text != "" {
		schedules, _ = strconv.ParseUint(text, 10, 32)
	}
	defer func(before func() string) { newInstance = before }(newInstance)
	granted, reused := 0, 0
	for seed := range schedules {
		w := newWorld(t, seed)
		for range steps {
			w.step()
		}
		w.calm()
		w.checkRest(seed)
		granted, reused = granted+w.granted, reused+w.reused
	}
	t.Logf("%d schedules of %d steps: %d pods ran, %d with an address that another tenant had before",
		schedules, steps, granted, reused)
	if granted < int(schedules)*10 || reused < int(schedules)*3 {
		t.Errorf("too few events to prove anything")
	}
}

// checkRest checks that after calm every pod is admitted wherever its tenant is, and nothing is held back.
func (w *world) checkRest(seed uint64) {
	for _, m := range w.machines {
		if len(m.ledger.released) > 0 || len(m.ledger.ghosts) > 0 || len(m.ledger.Unexplained()) > 0 {
			w.fail("seed %d: %s still holds %v %v %v", seed, m.name, m.ledger.released, m.ledger.ghosts, m.ledger.Unexplained())
		}
		for id, record := range m.ledger.records {
			if record.Leaving {
				w.fail("seed %d: %s still has %s leaving", seed, m.name, id)
			}
		}
		for address, pod := range m.pods {
			for _, other := range w.machines {
				if other.flows.Numbers[pod.tenant] == 0 {
					continue
				}
				w.checkReached(seed, m, other, address, pod)
			}
		}
	}
}

func (w *world) checkReached(seed uint64, m, other *machine, address netip.Addr, pod pod) {
	held := m.ledger.claims[address]
	if held == nil {
		w.fail("seed %d: %s runs a pod with %s that it does not hold", seed, m.name, address)
	}
	for _, any := range w.machines {
		for _, tenant := range touching(any.ledger.Draft(w.now), tenants.Host(address)) {
			if tenant != pod.tenant {
				return // the policy gave a prefix to a tenant while another's pods still run in it, so it belongs to nobody until they end
			}
		}
	}
	if prefixes, _ := m.ledger.rules.Prefixes(held.tenant); held.byPrefix && !inside(prefixes, address) {
		return
	}
	for _, member := range other.flows.Members {
		if member.Prefix.Contains(address) && member.Tenant == pod.tenant {
			return
		}
	}
	w.fail("seed %d: %s does not admit %s of %s: %v", seed, other.name, address, pod.tenant, other.flows.Members)
}
