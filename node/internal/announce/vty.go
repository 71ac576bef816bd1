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

// Vty announces by `network` lines in bgpd's memory, for FRR older than 10. Each of our lines refers to the rail's
// route map, which distinguishes it from the operator's; nothing is ever saved. A restarted bgpd has lost the lines:
// Events reports that, and Sync adds them again.
type Vty struct {
	*reader
	mutex sync.Mutex
	// left maps each rail's name to the prefixes that its last Sync left in bgpd.
	left map[string]map[netip.Prefix]bool
}

// NewVty checks the settings. FRR does not have to run yet.
func NewVty(settings Settings) (*Vty, error) {
	if err := settings.Check(); err != nil {
		return nil, err
	}
	source := func(RailSettings) string { return "has a `network` line for it" }
	return &Vty{reader: newReader(settings, source), left: map[string]map[netip.Prefix]bool{}}, nil
}

// Close implements io.Closer. Nothing stays open between calls, and the lines stay in bgpd.
func (v *Vty) Close() error { return nil }

// Sync makes want the rail's network lines. It skips prefixes that must not be announced and names them in the error;
// above the cap it adds nothing. It returns ErrNotReady while bgpd has no BGP instance, and never creates one.
func (v *Vty) Sync(ctx context.Context, rail plan.Rail, want []netip.Prefix) (added, removed int, err error) {
	settings, err := v.settings.rail(rail.Name)
	if err != nil {
		return 0, 0, err
	}
	good, refused := settings.allowedPrefixes(want)
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
	return edit.added, edit.removed, joinFirst(append([]error{refused, err}, edit.wrong...))
}

// List returns the rail's network lines, sorted.
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
	text, err := talk.run("show running-config")
	if err != nil {
		return networkLines{}, err
	}
	lines := parseNetworkLines(text, v.settings.Rails)
	if lines.instance == "" {
		// Entering `router bgp` now would create an instance without the operator's settings.
		return lines, fmt.Errorf("%w: no `router bgp` yet; load FRR's configuration", ErrNotReady)
	}
	if v.settings.ASN != 0 && lines.asn != v.settings.ASN {
		return lines, fmt.Errorf("asn must be %d, the AS of bgpd, got %d", lines.asn, v.settings.ASN)
	}
	return lines, nil
}

// edit is a change of bgpd's configuration, by family.
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

// difference returns the edit that turns our lines into want. If full is true, it adds none.
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
			edit.wrong = append(edit.wrong, fmt.Errorf("FRR's configuration has %q, which railwrightd did not add; remove it",
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

// apply makes the changes and updates left. A refused change does not block the others.
func (e *edit) apply(talk *conversation, instance string, left map[netip.Prefix]bool) error {
	for _, command := range []string{"configure terminal", "router bgp " + instance} {
		if _, err := talk.run(command); err != nil {
			return err
		}
	}
	for _, family := range families {
		if len(e.changes[family]) == 0 {
			continue
		}
		if _, err := talk.run("address-family " + family.name + " unicast"); err != nil {
			return err
		}
		for _, change := range e.changes[family] {
			_, err := talk.run(change.command)
			var no refusal
			switch {
			case err == nil:
				e.record(change, left)
			case errors.As(err, &no):
				e.wrong = append(e.wrong, err)
			default:
				return err
			}
		}
		if _, err := talk.run("exit-address-family"); err != nil {
			return err
		}
	}
	_, err := talk.run("end")
	return err
}

func (e *edit) record(change change, left map[netip.Prefix]bool) {
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
