package announce

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"

	"railwright/node/internal/announce/frrconfig"
	"railwright/node/internal/plan"
)

// Vty announces by `network` lines in bgpd's memory, for FRR older than 10. Each line of ours refers to the rail's route
// map, so that it is known from the operator's; nothing is ever saved. A bgpd that starts anew has lost them: Events says
// so, and Sync gives them again.
type Vty struct {
	*reader
	mutex sync.Mutex
	// left is what the last Sync of a rail left in bgpd.
	left map[string]map[netip.Prefix]bool
}

// NewVty checks the settings. FRR need not be there yet.
func NewVty(settings Settings) (*Vty, error) {
	if err := settings.Check(); err != nil {
		return nil, err
	}
	source := func(RailSettings) string { return "has a `network` line for it" }
	return &Vty{reader: newReader(settings, source), left: map[string]map[netip.Prefix]bool{}}, nil
}

// Close is there for symmetry; nothing stays open between calls, and the lines stay in bgpd.
func (v *Vty) Close() error { return nil }

// Sync makes the rail's network lines exactly these. What may not be announced is left out and named in the error; over
// the cap nothing is added. ErrNotReady as long as bgpd has no BGP instance: one is never made.
func (v *Vty) Sync(ctx context.Context, rail plan.Rail, want []netip.Prefix) (added, removed int, err error) {
	settings, err := v.settings.rail(rail.Name)
	if err != nil {
		return 0, 0, err
	}
	good, refused := settings.allowed(want)
	v.mutex.Lock()
	defer v.mutex.Unlock()
	talk, err := v.bgpd.open(ctx)
	if err != nil {
		return 0, 0, errors.Join(refused, err)
	}
	defer talk.close()
	lines, err := v.lines(talk)
	if err != nil {
		return 0, 0, errors.Join(refused, err)
	}
	left := lines.ours[rail.Name]
	edit := difference(settings, lines, good, errors.Is(refused, ErrTooMany))
	if len(edit.changes) > 0 {
		err = edit.apply(talk, lines.instance, left)
	}
	v.left[rail.Name] = left
	return edit.added, edit.removed, few(append([]error{refused, err}, edit.wrong...))
}

// List the rail's network lines, sorted.
func (v *Vty) List(ctx context.Context, rail plan.Rail) ([]netip.Prefix, error) {
	if _, err := v.settings.rail(rail.Name); err != nil {
		return nil, err
	}
	talk, err := v.bgpd.open(ctx)
	if err != nil {
		return nil, err
	}
	defer talk.close()
	lines, err := v.lines(talk)
	if err != nil {
		return nil, err
	}
	return sorted(lines.ours[rail.Name]), nil
}

func (v *Vty) lines(talk *conversation) (networkLines, error) {
	text, err := talk.say("show running-config")
	if err != nil {
		return networkLines{}, err
	}
	lines := parseNetworkLines(text, v.settings.Rails)
	if lines.instance == "" {
		// To enter `router bgp` now would make one, without the operator's settings.
		return lines, fmt.Errorf("%w: it has no `router bgp` yet; load FRR's configuration", ErrNotReady)
	}
	if v.settings.ASN != 0 && lines.asn != v.settings.ASN {
		return lines, fmt.Errorf("bgpd runs AS %d, our configuration says %d: make them the same", lines.asn, v.settings.ASN)
	}
	return lines, nil
}

// edit of bgpd's configuration, by family.
type edit struct {
	changes        map[family][]change
	added, removed int
	wrong          []error
}

type change struct {
	prefix  netip.Prefix
	add     bool
	command string
}

func newEdit() *edit { return &edit{changes: map[family][]change{}} }

// difference between our lines and those wanted; full: add none.
func difference(rail RailSettings, lines networkLines, want []netip.Prefix, full bool) *edit {
	edit := newEdit()
	ours := lines.ours[rail.Name]
	for _, prefix := range sorted(ours) {
		if _, found := slices.BinarySearchFunc(want, prefix, netip.Prefix.Compare); !found {
			edit.plan(rail, prefix, false)
		}
	}
	for _, prefix := range want {
		switch {
		case ours[prefix] || full:
		case lines.theirs[prefix] != "":
			edit.wrong = append(edit.wrong, fmt.Errorf("FRR's configuration has %q, which is not ours; take it out",
				brief(lines.theirs[prefix])))
		default:
			edit.plan(rail, prefix, true)
		}
	}
	return edit
}

func (e *edit) plan(rail RailSettings, prefix netip.Prefix, add bool) {
	command := fmt.Sprintf("network %s route-map %s", prefix, frrconfig.RouteMap(rail.Name))
	if !add {
		command = "no " + command
	}
	family := familyOf(prefix)
	e.changes[family] = append(e.changes[family], change{prefix, add, command})
}

// apply the changes and keep left true. A refusal of one does not keep the others from their turn.
func (e *edit) apply(talk *conversation, instance string, left map[netip.Prefix]bool) error {
	for _, command := range []string{"configure terminal", "router bgp " + instance} {
		if _, err := talk.say(command); err != nil {
			return err
		}
	}
	for _, family := range families {
		if len(e.changes[family]) == 0 {
			continue
		}
		if _, err := talk.say("address-family " + family.name + " unicast"); err != nil {
			return err
		}
		for _, change := range e.changes[family] {
			_, err := talk.say(change.command)
			var no refusal
			switch {
			case err == nil:
				e.done(change, left)
			case errors.As(err, &no):
				e.wrong = append(e.wrong, err)
			default:
				return err
			}
		}
		if _, err := talk.say("exit-address-family"); err != nil {
			return err
		}
	}
	_, err := talk.say("end")
	return err
}

func (e *edit) done(change change, left map[netip.Prefix]bool) {
	if change.add {
		left[change.prefix] = true
		e.added++
	} else {
		delete(left, change.prefix)
		e.removed++
	}
}

func sorted(set map[netip.Prefix]bool) []netip.Prefix {
	prefixes := make([]netip.Prefix, 0, len(set))
	for prefix := range set {
		prefixes = append(prefixes, prefix)
	}
	slices.SortFunc(prefixes, netip.Prefix.Compare)
	return prefixes
}
