package announce

import (
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"
)

func twoRails() Settings {
	return Settings{Socket: "/run/frr/bgpd.vty", Rails: []RailSettings{
		{Name: "rail0", Bridge: "br-rail0", Table: 7700, Prefixes: []netip.Prefix{netip.MustParsePrefix("10.0.0.0/16"),
			netip.MustParsePrefix("fd00::/48")}},
		{Name: "rail1", Bridge: "br-rail1", Table: 7701, Peer: netip.MustParseAddr("192.0.2.0"),
			Prefixes: []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16")}},
	}}
}

func TestCheckNamesTheMistake(t *testing.T) {
	if err := twoRails().Check(); err != nil {
		t.Fatal(err)
	}
	for want, spoil := range map[string]func(*Settings){
		"absolute path":           func(s *Settings) { s.Socket = "bgpd.vty" },
		"rails must not be empty": func(s *Settings) { s.Rails = nil },
		"rail name must have 1 to 32 of a-z, 0-9 and -, got \"r 0; no router\"": func(s *Settings) { s.Rails[0].Name = "r 0; no router" },
		"bridge must be an interface name":                                      func(s *Settings) { s.Rails[0].Bridge = "br0 json" },
		"rail names must be unique, got rail0":                                  func(s *Settings) { s.Rails[1].Name = "rail0" },
		"must have different leaves, both have br-rail0":                        func(s *Settings) { s.Rails[1].Bridge, s.Rails[1].Peer = "br-rail0", netip.Addr{} },
		"unicast address, got fe80::1":                                          func(s *Settings) { s.Rails[0].Peer = netip.MustParseAddr("fe80::1") },
		"prefixes must not be empty":                                            func(s *Settings) { s.Rails[0].Prefixes = nil },
		"got 0.0.0.0/0":                                                         func(s *Settings) { s.Rails[0].Prefixes[0] = netip.MustParsePrefix("0.0.0.0/0") },
		"got 10.0.0.1/16":                                                       func(s *Settings) { s.Rails[0].Prefixes[0] = netip.MustParsePrefix("10.0.0.1/16") },
		"10.0.3.0/24 of rail rail1 must not overlap":                            func(s *Settings) { s.Rails[1].Prefixes[0] = netip.MustParsePrefix("10.0.3.0/24") },
		"max_prefixes must be at least 0, got -1":                               func(s *Settings) { s.Rails[0].MaxPrefixes = -1 },
		"belong to the kernel, got 254":                                         func(s *Settings) { s.Rails[0].Table = 254 },
		"belong to the kernel, got 0":                                           func(s *Settings) { s.Rails[0].Table = 0 },
		"rail0 and rail1 must have different tables, both have 7701":            func(s *Settings) { s.Rails[0].Table = 7701 },
	} {
		settings := twoRails()
		spoil(&settings)
		kernel, err := NewKernelTable(settings)
		if err == nil {
			_ = kernel.Close()
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("want %q, got %v", want, err)
		}
	}
}

func TestAllowsOnlyPodAddresses(t *testing.T) {
	settings := twoRails()
	settings.Rails[0].MaxPrefixes = 2
	prefixes := func(texts ...string) (all []netip.Prefix) {
		for _, text := range texts {
			all = append(all, netip.MustParsePrefix(text))
		}
		return all
	}
	if err := settings.Allows("rail0", prefixes("10.0.0.1/32", "10.0.0.2/32", "fd00::1/128", "fd00::2/128", "10.0.0.1/32")); err != nil {
		t.Error(err)
	}
	if err := settings.Allows("rail0", prefixes("10.0.0.1/32", "10.0.0.2/32", "10.0.0.3/32")); !errors.Is(err, ErrTooMany) {
		t.Error(err)
	}
	for _, wrong := range []string{"10.0.0.0/31", "10.1.0.1/32", "fd00::/127", "0.0.0.0/32", "fd01::1/128"} {
		if err := settings.Allows("rail0", prefixes(wrong)); !errors.Is(err, ErrNotAllowed) {
			t.Errorf("%s: %v", wrong, err)
		}
	}
	if err := settings.Allows("rail0", []netip.Prefix{{}}); !errors.Is(err, ErrNotAllowed) {
		t.Error(err)
	}
	if err := settings.Allows("rail7", nil); err == nil {
		t.Error("unknown rail allows prefixes")
	}
	mapped := netip.PrefixFrom(netip.AddrFrom16(netip.MustParseAddr("10.0.0.1").As16()), 128)
	if err := settings.Allows("rail0", []netip.Prefix{mapped}); !errors.Is(err, ErrNotAllowed) {
		t.Errorf("%s: %v", mapped, err)
	}
}

func TestRouteMapsTellOurNetworkLines(t *testing.T) {
	text := `frr version 10.3
router bgp 1.10 as-notation dot
 bgp router-id 10.255.1.1
 !
 address-family ipv4 unicast
  network 10.0.0.1/32 route-map railwright-rail0
  network 10.0.0.2/32
  network 10.0.0.3/32 route-map railwright-rail1
  network 10.0.0.4/32 route-map railwright-rail9
  network 10.0.0.5/32 label-index 3 route-map railwright-rail0
  network nonsense route-map railwright-rail0
 exit-address-family
 !
 address-family ipv6 unicast
  network fd00::1/128 route-map railwright-rail0
 exit-address-family
exit
!
router bgp 65000 vrf blue
 address-family ipv4 unicast
  network 10.0.0.9/32 route-map railwright-rail0
 exit-address-family
exit
`
	lines := parseNetworkLines(text, twoRails().Rails)
	if lines.instance != "1.10" || lines.asn != 1<<16|10 {
		t.Errorf("instance %q, AS %d", lines.instance, lines.asn)
	}
	want := []netip.Prefix{netip.MustParsePrefix("10.0.0.1/32"), netip.MustParsePrefix("fd00::1/128")}
	if got := sorted(lines.ours["rail0"]); !slices.Equal(got, want) {
		t.Errorf("rail0: %v", got)
	}
	if got := sorted(lines.ours["rail1"]); len(got) != 1 || got[0].String() != "10.0.0.3/32" {
		t.Errorf("rail1: %v", got)
	}
	for _, prefix := range []string{"10.0.0.2/32", "10.0.0.4/32", "10.0.0.5/32"} {
		if lines.theirs[netip.MustParsePrefix(prefix)] == "" {
			t.Errorf("%s should be the operator's", prefix)
		}
	}
}

func FuzzNetworkLines(f *testing.F) {
	f.Add("router bgp 1\n address-family ipv4 unicast\n  network 10.0.0.1/32 route-map railwright-rail0\n")
	f.Add("router bgp 1.99999999999\n network\n\x00 network ::/0")
	f.Fuzz(func(t *testing.T, text string) {
		lines := parseNetworkLines(text, twoRails().Rails)
		for rail, ours := range lines.ours {
			for prefix := range ours {
				if !prefix.IsValid() || !strings.Contains(text, "railwright-"+rail) {
					t.Errorf("parsed %s of %s from %q", prefix, rail, text)
				}
			}
		}
		if strings.ContainsAny(lines.instance, " \n;\x00") || len(lines.instance) > 16 {
			t.Errorf("instance %q", lines.instance)
		}
	})
}
