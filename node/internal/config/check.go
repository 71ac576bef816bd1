package config

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"railwright/node/internal/attachment"
	"railwright/node/internal/plan"
)

// file is the YAML as it is written.
type file struct {
	Node             string       `json:"node"`
	StateFolder      string       `json:"state_folder"`
	Socket           string       `json:"socket"`
	AllowedUIDs      []uint32     `json:"allowed_uids"`
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
	Table       int      `json:"table"`
	Families    []string `json:"families"`
	Prefixes    []string `json:"prefixes"`
	KeepTTL     bool     `json:"keep_ttl"`
	MaxPrefixes int      `json:"max_prefixes"`
	Routers     []string `json:"routers"`
	DSCP        *marking `json:"dscp"`
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

// Defaults of the fields that may be left out.
const (
	defaultStateFolder = "/var/lib/railwright"
	// DefaultSocket is where the plugins look for railwrightd.
	DefaultSocket           = "/run/railwright/railwrightd.sock"
	defaultMetrics          = "127.0.0.1:9477"
	defaultDatabase         = "/run/openvswitch/db.sock"
	defaultManagement       = "/run/openvswitch"
	defaultBGPSocket        = "/run/frr/bgpd.vty"
	defaultMaxPrefixes      = 200
	defaultAdvertiseTimeout = "2s"
	defaultConfirmTimeout   = "1s"
	mostRails               = 64
	// FRR's table-direct takes no higher one.
	highestTable = 65535
	mostRailName = 32
)

// problems found so far, in the file's order.
type problems struct{ found []error }

func (p *problems) add(where, format string, values ...any) {
	p.found = append(p.found, fmt.Errorf("%s: %s", where, fmt.Sprintf(format, values...)))
}

func (f file) check() (Config, error) {
	var wrong problems
	config := Config{Node: orElse(f.Node, hostname()), AllowedUIDs: f.AllowedUIDs, NetnsFolders: f.NetnsFolders}
	if len(validation.IsDNS1123Subdomain(config.Node)) > 0 {
		wrong.add("node", "%.80q is no node's name; give the name that Kubernetes has for this node", config.Node)
	}
	config.StateFolder = wrong.path("state_folder", orElse(f.StateFolder, defaultStateFolder), attachment.LongestPath)
	config.Socket = wrong.path("socket", orElse(f.Socket, DefaultSocket), attachment.LongestSocket)
	if len(config.AllowedUIDs) == 0 {
		config.AllowedUIDs = []uint32{0}
	}
	config.Metrics = wrong.metrics(orElse(f.Metrics, defaultMetrics))
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
	if len(written) == 0 || len(written) > mostRails {
		p.add("rails", "%d are given; give 1 to %d, one for each NIC of the GPU network", len(written), mostRails)
		return nil
	}
	rails := make([]Rail, 0, len(written))
	holders := map[string]string{}
	for i, fields := range written {
		where := fmt.Sprintf("rails[%d]", i)
		rails = append(rails, p.rail(where, fields))
		for _, own := range []string{
			"name " + fields.Name, "interface " + fields.Bridge, "interface " + fields.Uplink,
			fmt.Sprintf("table %d", fields.Table),
		} {
			if holder, taken := holders[own]; taken {
				p.add(where, "%s is already of %s; each rail needs its own", own, holder)
			}
			holders[own] = where
		}
	}
	p.routersOutside(rails)
	return rails
}

// routersOutside of all pods' prefixes: a pod with the address of a leaf would take its BGP, and one with the address of
// a router would be believed as that.
func (p *problems) routersOutside(rails []Rail) {
	for i, rail := range rails {
		for _, other := range rails {
			for _, prefix := range other.Prefixes {
				if rail.Leaf.IsValid() && prefix.Contains(rail.Leaf) {
					p.add(fmt.Sprintf("rails[%d].leaf", i), "%s lies in %s, the pods' prefix of rail %s; give the pods prefixes that hold no "+
						"address of leaves and nodes", rail.Leaf, prefix, other.Name)
					continue
				}
				for _, router := range rail.Routers {
					if router.Overlaps(prefix) {
						p.add(fmt.Sprintf("rails[%d].routers", i), "%s and %s, the pods' prefix of rail %s, overlap; give the routers' own "+
							"addresses alone", router, prefix, other.Name)
					}
				}
			}
		}
	}
}

func (p *problems) rail(where string, fields railFields) Rail {
	if len(fields.Name) > mostRailName || len(validation.IsDNS1123Label(fields.Name)) > 0 {
		p.add(where+".name", "%.80q is none; give a short one like rail0, of a-z, 0-9 and -", fields.Name)
	}
	p.link(where+".bridge", fields.Bridge)
	p.link(where+".uplink", fields.Uplink)
	leaf := p.leaf(where+".leaf", fields.Leaf)
	if fields.Table < 1 || fields.Table > highestTable || fields.Table >= 253 && fields.Table <= 255 {
		p.add(where+".table", "%d cannot be used; give the number of a routing table that nobody else uses, 1 to "+
			"%d, not 253 to 255, and the same one in FRR's `redistribute table-direct`", fields.Table, highestTable)
	}
	rail := Rail{
		Rail: plan.Rail{
			Name: fields.Name, Bridge: fields.Bridge, Uplink: fields.Uplink, Table: fields.Table, KeepTTL: fields.KeepTTL,
		},
		Leaf:        leaf,
		MaxPrefixes: fields.MaxPrefixes,
	}
	p.addresses(where, fields, &rail)
	rail.Routers = p.routers(where+".routers", fields.Routers, leaf)
	rail.Marking = p.marking(where+".dscp", fields.DSCP)
	if fields.MaxPrefixes < 0 {
		p.add(where+".max_prefixes", "%d is below 0; give one below the leaf's maximum-prefix", fields.MaxPrefixes)
	}
	if rail.MaxPrefixes == 0 {
		rail.MaxPrefixes = defaultMaxPrefixes
	}
	return rail
}

func (p *problems) link(where, name string) {
	if !attachment.IsLink(name) {
		p.add(where, "%.80q is no interface's name; `ip link` lists them", name)
	}
}

// addresses that pods may have: the prefixes, and the families of them unless these are named.
func (p *problems) addresses(where string, fields railFields, rail *Rail) {
	rail.IPv4, rail.IPv6 = p.families(where+".families", fields.Families)
	if len(fields.Prefixes) == 0 {
		p.add(where+".prefixes", "none is given; give those that IPAM takes the pods' addresses from: no other route "+
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
		p.add(where+".families", "%v holds a family that no prefix is of; give a prefix of it, or leave families out",
			fields.Families)
	}
}

func (p *problems) leaf(where, text string) netip.Addr {
	if text == "unnumbered" {
		return netip.Addr{}
	}
	address, err := netip.ParseAddr(text)
	if err != nil || !address.IsGlobalUnicast() || address.Is4In6() {
		p.add(where, "%.80q is no leaf's address; give that of the BGP peer, or `unnumbered`", text)
	}
	return address
}

func (p *problems) families(where string, given []string) (ipv4, ipv6 bool) {
	for _, family := range given {
		switch family {
		case "ipv4":
			ipv4 = true
		case "ipv6":
			ipv6 = true
		default:
			p.add(where, "%.80q is no family; give ipv4, ipv6 or both", family)
		}
	}
	return ipv4, ipv6
}

func (p *problems) prefix(where, text string) (netip.Prefix, bool) {
	prefix, err := netip.ParsePrefix(text)
	switch {
	case err != nil:
		p.add(where, "%.80q is no prefix; give one like 10.1.0.0/16", text)
	case prefix != prefix.Masked():
		p.add(where, "%s has bits set behind its length; did you mean %s?", prefix, prefix.Masked())
	case prefix.Addr().Is4In6() || prefix.Bits() == 0:
		p.add(where, "%s cannot be the pods'; give the prefix that their addresses come from", prefix)
	default:
		return prefix, true
	}
	return netip.Prefix{}, false
}

func (p *problems) frr(fields frrFields) FRR {
	frr := FRR{Backend: Backend(orElse(fields.Backend, string(KernelTable))), ASN: fields.ASN}
	if frr.Backend != KernelTable && frr.Backend != Vty {
		p.add("frr.backend", "%.80q is none; give %s (FRR 10) or %s (older)", fields.Backend, KernelTable, Vty)
	}
	frr.BGPSocket = p.path("frr.bgp_socket", orElse(fields.BGPSocket, defaultBGPSocket), attachment.LongestSocket)
	if frr.Backend == Vty && frr.ASN == 0 {
		p.add("frr.asn", "it is missing; with the backend %s give that of FRR's `router bgp`", Vty)
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
		p.add("tenants.kind", "%.80q is none; give %s, or %s for nodes that share a folder, or %s for one node alone",
			fields.Kind, Kubernetes, Folder, Local)
	}
	return tenants
}

func (p *problems) metrics(text string) netip.AddrPort {
	address, err := netip.ParseAddrPort(text)
	if err != nil || address.Port() == 0 {
		p.add("metrics", "%.80q is no address and port; give one like %s", text, defaultMetrics)
	}
	return address
}

func (p *problems) path(where, text string, longest int) string {
	if !filepath.IsAbs(text) || len(text) > longest || strings.ContainsRune(text, 0) {
		p.add(where, "%.120q cannot be used; give a path that starts with / and has at most %d bytes", text, longest)
	}
	return filepath.Clean(text)
}

func (p *problems) duration(where, text string) time.Duration {
	duration, err := time.ParseDuration(text)
	if err != nil || duration < 10*time.Millisecond || duration > time.Minute {
		p.add(where, "%.80q cannot be used; give a time like 2s, from 10ms to 1m", text)
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
