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

func TestSettingsSayWhatIsWrong(t *testing.T) {
	if err := twoRails().Check(); err != nil {
		t.Fatal(err)
	}
	for want, spoil := range map[string]func(*Settings){
		"absolute path":                            func(s *Settings) { s.Socket = "bgpd.vty" },
		"no rails":                                 func(s *Settings) { s.Rails = nil },
		"name of a rail \"r 0; no router\"":        func(s *Settings) { s.Rails[0].Name = "r 0; no router" },
		"is not the name of an interface":          func(s *Settings) { s.Rails[0].Bridge = "br0 json" },
		"two rails are called rail0":               func(s *Settings) { s.Rails[1].Name = "rail0" },
		"have the same leaf br-rail0":              func(s *Settings) { s.Rails[1].Bridge, s.Rails[1].Peer = "br-rail0", netip.Addr{} },
		"peer fe80::1 is not":                      func(s *Settings) { s.Rails[0].Peer = netip.MustParseAddr("fe80::1") },
		"no prefixes of pods":                      func(s *Settings) { s.Rails[0].Prefixes = nil },
		"0.0.0.0/0 is not a network":               func(s *Settings) { s.Rails[0].Prefixes[0] = netip.MustParsePrefix("0.0.0.0/0") },
		"10.0.0.1/16 is not a network":             func(s *Settings) { s.Rails[0].Prefixes[0] = netip.MustParsePrefix("10.0.0.1/16") },
		"10.0.3.0/24 of rail rail1 overlaps":       func(s *Settings) { s.Rails[1].Prefixes[0] = netip.MustParsePrefix("10.0.3.0/24") },
		"give a number above 0":                    func(s *Settings) { s.Rails[0].MaxPrefixes = -1 },
		"table 254: use 1 to 65535":                func(s *Settings) { s.Rails[0].Table = 254 },
		"table 0: use 1 to 65535":                  func(s *Settings) { s.Rails[0].Table = 0 },
		"rail0 and rail1 have the same table 7701": func(s *Settings) { s.Rails[0].Table = 7701 },
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

func TestAllowsOnePodsAddressesOnly(t *testing.T) {
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
		t.Error("a rail that is not there allows something")
	}
	mapped := netip.PrefixFrom(netip.AddrFrom16(netip.MustParseAddr("10.0.0.1").As16()), 128)
	if err := settings.Allows("rail0", []netip.Prefix{mapped}); !errors.Is(err, ErrNotAllowed) {
		t.Errorf("%s: %v", mapped, err)
	}
}

func TestNetworkLinesAreOursByTheirRouteMap(t *testing.T) {
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
			t.Errorf("%s is not the operator's", prefix)
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
					t.Errorf("%s of %s out of %q", prefix, rail, text)
				}
			}
		}
		if strings.ContainsAny(lines.instance, " \n;\x00") || len(lines.instance) > 16 {
			t.Errorf("instance %q", lines.instance)
		}
	})
}
