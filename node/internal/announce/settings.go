package announce

import (
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"railwright/node/internal/attachment"
)

// Errors that callers distinguish.
var (
	// ErrNotAllowed is returned for a prefix that is not the address of a pod of the rail.
	ErrNotAllowed = errors.New("must not be announced")
	// ErrTooMany is returned for more prefixes of a family than the rail's cap.
	ErrTooMany = errors.New("too many prefixes for the rail")
	// ErrNotReady is returned while bgpd is down, does not reply, or has no configuration yet.
	ErrNotReady = errors.New("FRR's bgpd is not ready")
	// ErrNotAdvertised is returned when FRR has not sent a prefix to the leaf.
	ErrNotAdvertised = errors.New("not advertised to the leaf")
)

// Settings configure the node's FRR and the routes that may be announced through it.
type Settings struct {
	// Socket is bgpd's vtysh socket, such as /run/frr/bgpd.vty.
	Socket string
	// ASN is the AS number that bgpd must run. 0 accepts any.
	ASN uint32
	// SessionPoll is the interval at which Events polls bgpd. 0 means 1 s.
	SessionPoll time.Duration
	Rails       []RailSettings
}

// RailSettings configure a rail.
type RailSettings struct {
	// Name has up to 32 lower-case letters, digits and -. It is part of the names of route maps in FRR.
	Name string
	// Bridge is the interface towards the leaf.
	Bridge string
	// Peer is the leaf's address. The zero value means unnumbered over the bridge's own interface.
	Peer netip.Addr
	// SecondPeer is the address of the second leaf. The zero value means that there is none.
	SecondPeer netip.Addr
	// Table is the kernel table for this rail's host routes. Only KernelTable uses it.
	Table int
	// Prefixes contain the addresses of all pods of the rail. Those of two rails never overlap.
	Prefixes []netip.Prefix
	// MaxPrefixes is the cap for each address family, counted as a leaf's maximum-prefix counts. 0 means 200. It must
	// stay below the leaf's limit: the leaf ends the whole session of a node that announces more.
	MaxPrefixes int
	// Retired reports that the rail is no longer configured. Its leaf and prefixes may belong to another rail now.
	Retired bool
}

const (
	defaultSessionPoll = time.Second
	defaultMaxPrefixes = 200
)

// Check validates the settings.
func (s Settings) Check() error {
	if !filepath.IsAbs(s.Socket) || len(s.Socket) > attachment.LongestSocket {
		return fmt.Errorf("bgpd socket must be an absolute path of at most %d bytes, such as /run/frr/bgpd.vty, got %.120q",
			attachment.LongestSocket, s.Socket)
	}
	if len(s.Rails) == 0 {
		return errors.New("rails must not be empty")
	}
	for number, rail := range s.Rails {
		if err := rail.check(); err != nil {
			return err
		}
		for _, other := range s.Rails[:number] {
			if err := checkDistinct(rail, other); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r RailSettings) check() error {
	if len(r.Name) > 32 || len(validation.IsDNS1123Label(r.Name)) > 0 {
		return fmt.Errorf("rail name must have 1 to 32 of a-z, 0-9 and -, got %.40q", r.Name)
	}
	if !attachment.IsLink(r.Bridge) {
		return fmt.Errorf("rail %s: bridge must be an interface name, got %.40q", r.Name, r.Bridge)
	}
	if peer := r.Peer; peer.IsValid() && (peer.Zone() != "" || peer.Is4In6() || peer.IsUnspecified() || peer.IsMulticast() ||
		peer.IsLinkLocalUnicast()) {
		return fmt.Errorf("rail %s: peer must be a leaf's unicast address, got %s; leave it out for an unnumbered leaf", r.Name, peer)
	}
	if len(r.Prefixes) == 0 {
		return fmt.Errorf("rail %s: prefixes must not be empty", r.Name)
	}
	for _, prefix := range r.Prefixes {
		if !prefix.IsValid() || prefix != prefix.Masked() || prefix.Addr().Is4In6() || prefix.Bits() == 0 ||
			prefix.Addr().IsMulticast() || prefix.Addr().IsLinkLocalUnicast() || prefix.Addr().IsLoopback() {
			return fmt.Errorf("rail %s: prefix must be a network of pods such as 10.1.0.0/16 or fd00:1::/48, got %s", r.Name, prefix)
		}
	}
	if r.MaxPrefixes < 0 {
		return fmt.Errorf("rail %s: max_prefixes must be at least 0, got %d", r.Name, r.MaxPrefixes)
	}
	return nil
}

// checkTable refuses tables that the kernel's own rules look up, because the blackhole routes would drop the host's
// packets, and tables outside FRR's table-direct, which takes 1 to 65535.
func (r RailSettings) checkTable() error {
	if r.Table < 1 || r.Table > 65535 || (r.Table >= 253 && r.Table <= 255) {
		return fmt.Errorf("rail %s: table must be 1 to 65535 except 253 to 255, which belong to the kernel, got %d", r.Name, r.Table)
	}
	return nil
}

func checkDistinct(a, other RailSettings) error {
	if a.Name == other.Name {
		return fmt.Errorf("rail names must be unique, got %s twice", a.Name)
	}
	if a.Retired || other.Retired {
		return nil
	}
	for _, neighbor := range a.neighbors() {
		if slices.Contains(other.neighbors(), neighbor) {
			return fmt.Errorf("rails %s and %s must have different leaves, both have %s", other.Name, a.Name, neighbor)
		}
	}
	for _, prefix := range a.Prefixes {
		for _, taken := range other.Prefixes {
			if prefix.Overlaps(taken) {
				return fmt.Errorf("prefix %s of rail %s must not overlap %s of rail %s", prefix,
					a.Name, taken, other.Name)
			}
		}
	}
	return nil
}

// neighbor returns FRR's name of the leaf.
func (r RailSettings) neighbor() string {
	if r.Peer.IsValid() {
		return r.Peer.String()
	}
	return r.Bridge
}

// neighbors returns FRR's names of the rail's leaves, one or two.
func (r RailSettings) neighbors() []string {
	if r.SecondPeer.IsValid() {
		return []string{r.neighbor(), r.SecondPeer.String()}
	}
	return []string{r.neighbor()}
}

func (r RailSettings) limit() int {
	if r.MaxPrefixes == 0 {
		return defaultMaxPrefixes
	}
	return r.MaxPrefixes
}

func (s Settings) rail(name string) (RailSettings, error) {
	for _, rail := range s.Rails {
		if rail.Name == name {
			return rail, nil
		}
	}
	return RailSettings{}, fmt.Errorf("no rail %.40q is configured", name)
}

// Allows reports whether the rail may announce exactly these prefixes. It returns ErrNotAllowed or ErrTooMany.
func (s Settings) Allows(rail string, prefixes []netip.Prefix) error {
	settings, err := s.rail(rail)
	if err != nil {
		return err
	}
	_, err = settings.allowedPrefixes(prefixes)
	return err
}

// allowedPrefixes returns the prefixes that may be announced, sorted and without duplicates. Prefixes above the cap
// stay in the result: on ErrTooMany the caller must not add any, but needs to know which routes to keep.
func (r RailSettings) allowedPrefixes(prefixes []netip.Prefix) ([]netip.Prefix, error) {
	var good []netip.Prefix
	var wrong []error
	for _, prefix := range prefixes {
		if err := r.allows(prefix); err != nil {
			wrong = append(wrong, err)
			continue
		}
		good = append(good, prefix)
	}
	slices.SortFunc(good, netip.Prefix.Compare)
	good = slices.Compact(good)
	for _, family := range families {
		count := 0
		for _, prefix := range good {
			if family.has(prefix) {
				count++
			}
		}
		if count > r.limit() {
			wrong = append(wrong,
				fmt.Errorf("%w: %d %s prefixes on rail %s, the cap is %d; raise max_prefixes, and keep the leaf's maximum-prefix above it",
					ErrTooMany, count, family.name, r.Name, r.limit()))
		}
	}
	return good, joinFirst(wrong)
}

func (r RailSettings) allows(prefix netip.Prefix) error {
	if !prefix.IsValid() || !prefix.IsSingleIP() || prefix.Addr().Is4In6() || prefix.Addr().Zone() != "" {
		return fmt.Errorf("%s %w: it is not a single address (/32 or /128)", prefix, ErrNotAllowed)
	}
	for _, allowed := range r.Prefixes {
		if allowed.Contains(prefix.Addr()) {
			return nil
		}
	}
	return fmt.Errorf("%s %w on rail %s: it is outside the prefixes %v of its pods", prefix,
		ErrNotAllowed, r.Name, r.Prefixes)
}

// joinFirst joins the first eight errors: a single cause often breaks everything.
func joinFirst(all []error) error {
	const limit = 8
	all = slices.DeleteFunc(slices.Clone(all), func(err error) bool { return err == nil })
	if len(all) > limit {
		all = append(all[:limit], errors.New("and "+strconv.Itoa(len(all)-limit)+" more"))
	}
	return errors.Join(all...)
}

// family is an address family with FRR's name.
type family struct {
	name string
	is4  bool
}

var families = []family{{"ipv4", true}, {"ipv6", false}}

func familyOf(prefix netip.Prefix) family {
	if prefix.Addr().Is4() {
		return families[0]
	}
	return families[1]
}

func (f family) has(prefix netip.Prefix) bool { return prefix.Addr().Is4() == f.is4 }
