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

// Errors that a caller may want to tell apart.
var (
	// ErrNotAllowed: a prefix that is not one address of a pod of the rail.
	ErrNotAllowed = errors.New("may not be announced")
	// ErrTooMany: more prefixes of a family than the rail's cap.
	ErrTooMany = errors.New("too many prefixes for the rail")
	// ErrNotReady: bgpd is away, does not answer, or has not got its configuration yet.
	ErrNotReady = errors.New("FRR's bgpd is not ready")
	// ErrNotAdvertised: FRR has not sent a prefix to the leaf.
	ErrNotAdvertised = errors.New("not advertised to the leaf")
)

// Settings of the node's FRR, and of what may be announced through it.
type Settings struct {
	// Socket of bgpd that vtysh talks to, as /run/frr/bgpd.vty.
	Socket string
	// ASN that bgpd is to run; 0: whichever it runs.
	ASN uint32
	// SessionPoll is how often bgpd is looked at for Events; 0: 1 s.
	SessionPoll time.Duration
	Rails       []RailSettings
}

// RailSettings of one rail.
type RailSettings struct {
	// Name is lower case letters, digits and -, up to 32; a part of the names of route maps in FRR.
	Name string
	// Bridge is the interface that the leaf is reached by.
	Bridge string
	// Peer is the leaf's address; zero: unnumbered over the bridge's own interface.
	Peer netip.Addr
	// Table of the kernel for this rail's host routes; only for KernelTable.
	Table int
	// Prefixes that all pods of the rail have their addresses in. Those of two rails never overlap.
	Prefixes []netip.Prefix
	// MaxPrefixes of each address family, as a leaf's maximum-prefix counts; 0: 200. To be below the leaf's: it ends the
	// whole session of a node that announces more.
	MaxPrefixes int
	// Retired: out of the configuration. Its leaf and its prefixes may be another rail's by now.
	Retired bool
}

const (
	defaultSessionPoll = time.Second
	defaultMaxPrefixes = 200
)

// Check says what is wrong with the settings.
func (s Settings) Check() error {
	if !filepath.IsAbs(s.Socket) || len(s.Socket) > attachment.LongestSocket {
		return fmt.Errorf("socket of bgpd %.120q: give an absolute path of up to %d bytes, as /run/frr/bgpd.vty", s.Socket,
			attachment.LongestSocket)
	}
	if len(s.Rails) == 0 {
		return errors.New("no rails to announce for: name one at least")
	}
	for number, rail := range s.Rails {
		if err := rail.check(); err != nil {
			return err
		}
		for _, other := range s.Rails[:number] {
			if err := apart(rail, other); err != nil {
				return err
			}
		}
	}
	return nil
}

func (r RailSettings) check() error {
	if len(r.Name) > 32 || len(validation.IsDNS1123Label(r.Name)) > 0 {
		return fmt.Errorf("name of a rail %.40q: use up to 32 of a-z, 0-9 and -", r.Name)
	}
	if !attachment.IsLink(r.Bridge) {
		return fmt.Errorf("rail %s: bridge %.40q is not the name of an interface", r.Name, r.Bridge)
	}
	if peer := r.Peer; peer.IsValid() && (peer.Zone() != "" || peer.Is4In6() || peer.IsUnspecified() || peer.IsMulticast() ||
		peer.IsLinkLocalUnicast()) {
		return fmt.Errorf("rail %s: peer %s is not a leaf's address; leave it out for a leaf known by the interface alone", r.Name, peer)
	}
	if len(r.Prefixes) == 0 {
		return fmt.Errorf("rail %s: no prefixes of pods; nothing could be announced", r.Name)
	}
	for _, prefix := range r.Prefixes {
		if !prefix.IsValid() || prefix != prefix.Masked() || prefix.Addr().Is4In6() || prefix.Bits() == 0 ||
			prefix.Addr().IsMulticast() || prefix.Addr().IsLinkLocalUnicast() || prefix.Addr().IsLoopback() {
			return fmt.Errorf("rail %s: %s is not a network of pods, as 10.1.0.0/16 or fd00:1::/48", r.Name, prefix)
		}
	}
	if r.MaxPrefixes < 0 {
		return fmt.Errorf("rail %s: at most %d prefixes: give a number above 0", r.Name, r.MaxPrefixes)
	}
	return nil
}

// checkTable: tables that the kernel's own rules look up would make the blackhole routes drop the host's packets, and
// FRR's table-direct knows 1 to 65535.
func (r RailSettings) checkTable() error {
	if r.Table < 1 || r.Table > 65535 || (r.Table >= 253 && r.Table <= 255) {
		return fmt.Errorf("rail %s: table %d: use 1 to 65535, but not 253, 254 and 255, which are the kernel's own", r.Name, r.Table)
	}
	return nil
}

func apart(a, other RailSettings) error {
	if a.Name == other.Name {
		return fmt.Errorf("two rails are called %s", a.Name)
	}
	if a.Retired || other.Retired {
		return nil
	}
	if a.neighbor() == other.neighbor() {
		return fmt.Errorf("rails %s and %s have the same leaf %s: give each its own", other.Name, a.Name, a.neighbor())
	}
	for _, prefix := range a.Prefixes {
		for _, taken := range other.Prefixes {
			if prefix.Overlaps(taken) {
				return fmt.Errorf("prefix %s of rail %s overlaps %s of rail %s: a pod's address must tell its rail", prefix,
					a.Name, taken, other.Name)
			}
		}
	}
	return nil
}

// neighbor by which FRR knows the leaf.
func (r RailSettings) neighbor() string {
	if r.Peer.IsValid() {
		return r.Peer.String()
	}
	return r.Bridge
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
	return RailSettings{}, fmt.Errorf("rail %.40q is not configured", name)
}

// Allows says whether the rail may announce exactly these: ErrNotAllowed, ErrTooMany.
func (s Settings) Allows(rail string, prefixes []netip.Prefix) error {
	settings, err := s.rail(rail)
	if err != nil {
		return err
	}
	_, err = settings.allowed(prefixes)
	return err
}

// allowed gives those of the prefixes that may be announced, sorted and each once. What is over the cap stays in it:
// whoever adds must not, if the error is ErrTooMany; whoever removes needs to know what is still wanted.
func (r RailSettings) allowed(prefixes []netip.Prefix) ([]netip.Prefix, error) {
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
				fmt.Errorf("%w: %d %s prefixes on rail %s, the cap is %d; raise max_prefixes and the leaf's maximum-prefix, which must stay above it",
					ErrTooMany, count, family.name, r.Name, r.limit()))
		}
	}
	return good, few(wrong)
}

func (r RailSettings) allows(prefix netip.Prefix) error {
	if !prefix.IsValid() || !prefix.IsSingleIP() || prefix.Addr().Is4In6() || prefix.Addr().Zone() != "" {
		return fmt.Errorf("%s %w: it is not one address (/32 or /128)", prefix, ErrNotAllowed)
	}
	for _, allowed := range r.Prefixes {
		if allowed.Contains(prefix.Addr()) {
			return nil
		}
	}
	return fmt.Errorf("%s %w on rail %s: it is outside of the prefixes %v configured for its pods", prefix,
		ErrNotAllowed, r.Name, r.Prefixes)
}

// few joins errors, the first eight of them: one cause often spoils all.
func few(all []error) error {
	const most = 8
	all = slices.DeleteFunc(slices.Clone(all), func(err error) bool { return err == nil })
	if len(all) > most {
		all = append(all[:most], errors.New("and "+strconv.Itoa(len(all)-most)+" more"))
	}
	return errors.Join(all...)
}

// family of addresses, as FRR calls it.
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
