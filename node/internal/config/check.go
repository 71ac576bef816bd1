package config

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"railwright/node/internal/attachment"
	"railwright/node/internal/plan"
)

// file is the YAML file as written.
type file struct {
	Node             string       `json:"node"`
	StateFolder      string       `json:"state_folder"`
	Socket           string       `json:"socket"`
	AllowedUIDs      []uint32     `json:"allowed_uids"`
	Health           string       `json:"health"`
	Metrics          string       `json:"metrics"`
	NetnsFolders     []string     `json:"netns_folders"`
	Rails            []railFields `json:"rails"`
	OpenVSwitch      ovsFields    `json:"openvswitch"`
	FRR              frrFields    `json:"frr"`
	Tenants          tenantFields `json:"tenants"`
	AdvertiseTimeout string       `json:"advertise_timeout"`
	ForwardTimeout   string       `json:"forward_timeout"`
	ConfirmTimeout   string       `json:"confirm_timeout"`
}

type railFields struct {
	Name        string   `json:"name"`
	Bridge      string   `json:"bridge"`
	Uplink      string   `json:"uplink"`
	Leaf        string   `json:"leaf"`
	Second      *second  `json:"second"`
	Table       int      `json:"table"`
	Families    []string `json:"families"`
	Prefixes    []string `json:"prefixes"`
	KeepTTL     bool     `json:"keep_ttl"`
	MaxPrefixes int      `json:"max_prefixes"`
	Routers     []string `json:"routers"`
	DSCP        *marking `json:"dscp"`
}

// second is the rail's second leaf, with the uplink to it.
type second struct {
	Uplink string `json:"uplink"`
	Leaf   string `json:"leaf"`
}

type ovsFields struct {
	Database   string `json:"database"`
	Management string `json:"management"`
}

type frrFields struct {
	Backend   string `json:"backend"`
	BGPSocket string `json:"bgp_socket"`
	ASN       uint32 `json:"asn"`
}

type tenantFields struct {
	Kind       string `json:"kind"`
	Folder     string `json:"folder"`
	File       string `json:"file"`
	Kubeconfig string `json:"kubeconfig"`
}

// Defaults and limits of the fields.
const (
	defaultStateFolder = "/var/lib/railwright"
	// DefaultSocket is the socket that the plugins connect to.
	DefaultSocket           = "/run/railwright/railwrightd.sock"
	defaultHealth           = "127.0.0.1:9477"
	defaultDatabase         = "/run/openvswitch/db.sock"
	defaultManagement       = "/run/openvswitch"
	defaultBGPSocket        = "/run/frr/bgpd.vty"
	defaultMaxPrefixes      = 200
	defaultAdvertiseTimeout = "2s"
	defaultConfirmTimeout   = "1s"
	maxRails                = 64
	// highestTable is the limit of FRR's table-direct.
	highestTable = 65535
	maxRailName  = 32
)

// problems collects errors in the order of the file.
type problems struct{ found []error }

func (p *problems) add(where, format string, values ...any) {
	p.found = append(p.found, fmt.Errorf("%s: %s", where, fmt.Sprintf(format, values...)))
}

func (f file) check() (Config, error) {
	var wrong problems
	config := Config{Node: orElse(f.Node, hostname()), AllowedUIDs: f.AllowedUIDs, NetnsFolders: f.NetnsFolders}
	if len(validation.IsDNS1123Subdomain(config.Node)) > 0 {
		wrong.add("node", "must be this node's name in Kubernetes, got %.80q", config.Node)
	}
	config.StateFolder = wrong.path("state_folder", orElse(f.StateFolder, defaultStateFolder), attachment.LongestPath)
	config.Socket = wrong.path("socket", orElse(f.Socket, DefaultSocket), attachment.LongestSocket)
	if len(config.AllowedUIDs) == 0 {
		config.AllowedUIDs = []uint32{0}
	}
	config.Health = wrong.listener("health", orElse(f.Health, defaultHealth))
	if f.Metrics != "" {
		config.Metrics = wrong.listener("metrics", f.Metrics)
	}
	if len(config.NetnsFolders) == 0 {
		config.NetnsFolders = []string{"/run/netns", "/var/run/netns", "/proc"}
	}
	for i, folder := range config.NetnsFolders {
		config.NetnsFolders[i] = wrong.path(fmt.Sprintf("netns_folders[%d]", i), folder, attachment.LongestPath)
	}
	config.Rails = wrong.rails(f.Rails)
	config.OpenVSwitch = wrong.openVSwitch(f.OpenVSwitch)
	config.FRR = wrong.frr(f.FRR)
	config.Tenants = wrong.tenants(f.Tenants)
	config.AdvertiseTimeout = wrong.duration("advertise_timeout", orElse(f.AdvertiseTimeout, defaultAdvertiseTimeout))
	if f.ForwardTimeout != "" {
		config.ForwardTimeout = wrong.duration("forward_timeout", f.ForwardTimeout)
	}
	config.ConfirmTimeout = wrong.duration("confirm_timeout", orElse(f.ConfirmTimeout, defaultConfirmTimeout))
	return config, errors.Join(wrong.found...)
}

func (p *problems) openVSwitch(fields ovsFields) OpenVSwitch {
	database := strings.TrimPrefix(orElse(fields.Database, defaultDatabase), "unix:")
	return OpenVSwitch{
		Database: p.path("openvswitch.database", database, attachment.LongestSocket),
		Management: p.path("openvswitch.management", orElse(fields.Management, defaultManagement),
			attachment.LongestPath),
	}
}

func (p *problems) rails(written []railFields) []Rail {
	if len(written) == 0 || len(written) > maxRails {
		p.add("rails", "must have 1 to %d entries, one for each NIC of the GPU network, got %d", maxRails, len(written))
		return nil
	}
	rails := make([]Rail, 0, len(written))
	holders := map[string]string{}
	for i, fields := range written {
		where := fmt.Sprintf("rails[%d]", i)
		rails = append(rails, p.rail(where, fields))
		resources := []string{
			"name " + fields.Name, "interface " + fields.Bridge, "interface " + fields.Uplink,
			fmt.Sprintf("table %d", fields.Table),
		}
		if fields.Second != nil && fields.Second.Uplink != fields.Uplink {
			resources = append(resources, "interface "+fields.Second.Uplink)
		}
		for _, resource := range resources {
			if holder, taken := holders[resource]; taken {
				p.add(where, "%s is already used by %s; each rail needs its own", resource, holder)
			}
			holders[resource] = where
		}
	}
	p.checkRouters(rails)
	return rails
}

// checkRouters checks that no prefix of pods contains a leaf or a router: a pod with a leaf's address would take over
// its BGP, and a pod with a router's address would be trusted as that router.
func (p *problems) checkRouters(rails []Rail) {
	for i, rail := range rails {
		for _, other := range rails {
			for _, prefix := range other.Prefixes {
				taken := false
				for _, leaf := range rail.Leaves() {
					if prefix.Contains(leaf) {
						taken = true
						p.add(fmt.Sprintf("rails[%d].leaf", i), "%s must not be in %s, a prefix of pods of rail %s; use prefixes for pods without "+
							"addresses of leaves and nodes", leaf, prefix, other.Name)
					}
				}
				if taken {
					continue
				}
				for _, router := range rail.Routers {
					if router.Overlaps(prefix) {
						p.add(fmt.Sprintf("rails[%d].routers", i), "%s must not overlap %s, a prefix of pods of rail %s; list only addresses "+
							"of routers", router, prefix, other.Name)
					}
				}
			}
		}
	}
}

func (p *problems) rail(where string, fields railFields) Rail {
	if len(fields.Name) > maxRailName || len(validation.IsDNS1123Label(fields.Name)) > 0 {
		p.add(where+".name", "must be a short name like rail0, of a-z, 0-9 and -, got %.80q", fields.Name)
	}
	p.link(where+".bridge", fields.Bridge)
	p.link(where+".uplink", fields.Uplink)
	leaf := p.leaf(where+".leaf", fields.Leaf)
	if fields.Table < 1 || fields.Table > highestTable || fields.Table >= 253 && fields.Table <= 255 {
		p.add(where+".table", "must be an unused routing table, 1 to "+
			"%d except 253 to 255, and the same as in FRR's `redistribute table-direct`, got %d", highestTable, fields.Table)
	}
	rail := Rail{
		Rail: plan.Rail{
			Name: fields.Name, Bridge: fields.Bridge, Uplink: fields.Uplink, Table: fields.Table, KeepTTL: fields.KeepTTL,
		},
		Leaf:        leaf,
		MaxPrefixes: fields.MaxPrefixes,
	}
	p.addresses(where, fields, &rail)
	p.second(where+".second", fields.Second, &rail)
	rail.Routers = p.routers(where+".routers", fields.Routers, rail.Leaves())
	rail.Marking = p.marking(where+".dscp", fields.DSCP)
	if fields.MaxPrefixes < 0 {
		p.add(where+".max_prefixes", "must be at least 0 and below the leaf's maximum-prefix, got %d", fields.MaxPrefixes)
	}
	if rail.MaxPrefixes == 0 {
		rail.MaxPrefixes = defaultMaxPrefixes
	}
	return rail
}

// second sets the second leaf. Both leaves need addresses: FRR has one unnumbered session for an interface.
func (p *problems) second(where string, fields *second, rail *Rail) {
	if fields == nil {
		return
	}
	p.link(where+".uplink", fields.Uplink)
	rail.Second, rail.SecondLeaf = fields.Uplink, p.leaf(where+".leaf", fields.Leaf)
	if !rail.Leaf.IsValid() || !rail.SecondLeaf.IsValid() || rail.Leaf == rail.SecondLeaf || rail.Leaf.Is4() != rail.SecondLeaf.Is4() {
		p.add(where+".leaf", "both leaves of a rail must have addresses of their own, of one family, got %.80q and %.80q", rail.Leaf, fields.Leaf)
	}
}

func (p *problems) link(where, name string) {
	if !attachment.IsLink(name) {
		p.add(where, "must be an interface name, got %.80q; `ip link` lists them", name)
	}
}

// addresses sets the prefixes of pods and their families. Without families, those of the prefixes apply.
func (p *problems) addresses(where string, fields railFields, rail *Rail) {
	rail.IPv4, rail.IPv6 = p.families(where+".families", fields.Families)
	if len(fields.Prefixes) == 0 {
		p.add(where+".prefixes", "must not be empty; list the prefixes that IPAM assigns from, because no other route "+
			"is announced")
	}
	var ipv4, ipv6 bool
	for i, text := range fields.Prefixes {
		if prefix, ok := p.prefix(fmt.Sprintf("%s.prefixes[%d]", where, i), text); ok {
			rail.Prefixes = append(rail.Prefixes, prefix)
			ipv4, ipv6 = ipv4 || prefix.Addr().Is4(), ipv6 || prefix.Addr().Is6()
		}
	}
	if len(fields.Families) == 0 {
		rail.IPv4, rail.IPv6 = ipv4, ipv6
	} else if rail.IPv4 && !ipv4 || rail.IPv6 && !ipv6 {
		p.add(where+".families", "%v must have a prefix for each family; add a prefix, or leave families out",
			fields.Families)
	}
}

func (p *problems) leaf(where, text string) netip.Addr {
	if text == "unnumbered" {
		return netip.Addr{}
	}
	address, err := netip.ParseAddr(text)
	if err != nil || !address.IsGlobalUnicast() || address.Is4In6() {
		p.add(where, "must be the address of the BGP peer or `unnumbered`, got %.80q", text)
	}
	return address
}

func (p *problems) families(where string, names []string) (ipv4, ipv6 bool) {
	for _, family := range names {
		switch family {
		case "ipv4":
			ipv4 = true
		case "ipv6":
			ipv6 = true
		default:
			p.add(where, "must be ipv4, ipv6 or both, got %.80q", family)
		}
	}
	return ipv4, ipv6
}

func (p *problems) prefix(where, text string) (netip.Prefix, bool) {
	prefix, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		p.add(where, "must be a prefix like 10.1.0.0/16, got %.80q", text)
	case prefix != prefix.Masked():
		p.add(where, "must not have host bits, got %s; did you mean %s?", prefix, prefix.Masked())
	case prefix.Addr().Is4In6() || prefix.Bits() == 0:
		p.add(where, "must be a prefix of pods' addresses, got %s", prefix)
	default:
		return prefix, true
	}
	return netip.Prefix{}, false
}

func (p *problems) frr(fields frrFields) FRR {
	frr := FRR{Backend: Backend(orElse(fields.Backend, string(KernelTable))), ASN: fields.ASN}
	if frr.Backend != KernelTable && frr.Backend != Vty {
		p.add("frr.backend", "must be %s (FRR 10) or %s (older), got %.80q", KernelTable, Vty, fields.Backend)
	}
	frr.BGPSocket = p.path("frr.bgp_socket", orElse(fields.BGPSocket, defaultBGPSocket), attachment.LongestSocket)
	if frr.Backend == Vty && frr.ASN == 0 {
		p.add("frr.asn", "required by the backend %s; use the AS of FRR's `router bgp`", Vty)
	}
	return frr
}

func (p *problems) tenants(fields tenantFields) Tenants {
	tenants := Tenants{Kind: Kind(fields.Kind)}
	switch tenants.Kind {
	case Folder:
		tenants.Folder = p.path("tenants.folder", fields.Folder, attachment.LongestPath)
	case Local:
		if fields.File != "" {
			tenants.File = p.path("tenants.file", fields.File, attachment.LongestPath)
		}
	case Kubernetes:
		if fields.Kubeconfig != "" {
			tenants.Kubeconfig = p.path("tenants.kubeconfig", fields.Kubeconfig, attachment.LongestPath)
		}
	default:
		p.add("tenants.kind", "must be %s, %s for nodes that share a folder, or %s for a single node, got %.80q",
			Kubernetes, Folder, Local, fields.Kind)
	}
	return tenants
}

// listener parses an address and port. An IPv4 address may have brackets too, so that a manifest can write
// [$(HOST_IP)]:9478 for both families.
func (p *problems) listener(where, text string) netip.AddrPort {
	host, port, err := net.SplitHostPort(text)
	address, wrongAddress := netip.ParseAddr(host)
	number, wrongPort := strconv.ParseUint(port, 10, 16)
	if err != nil || wrongAddress != nil || wrongPort != nil || number == 0 {
		p.add(where, "must be an address and port like %s, got %.80q", defaultHealth, text)
	}
	return netip.AddrPortFrom(address, uint16(number))
}

func (p *problems) path(where, text string, longest int) string {
	if !filepath.IsAbs(text) || len(text) > longest || strings.ContainsRune(text, 0) {
		p.add(where, "must be an absolute path of at most %d bytes, got %.120q", longest, text)
	}
	return filepath.Clean(text)
}

func (p *problems) duration(where, text string) time.Duration {
	duration, err := time.ParseDuration(text)
	if err != nil || duration < 10*time.Millisecond || duration > time.Minute {
		p.add(where, "must be a time from 10ms to 1m, like 2s, got %.80q", text)
	}
	return duration
}

func orElse(text, fallback string) string {
	if text == "" {
		return fallback
	}
	return text
}

func hostname() string {
	name, err := os.Hostname()
	if err != nil {
		return ""
	}
	return strings.ToLower(name)
}
