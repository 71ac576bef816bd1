package openvswitch

import (
	"fmt"
	"log/slog"
	"net/netip"
	"path/filepath"
	"regexp"

	"railwright/node/internal/attachment"
	"railwright/node/internal/plan"
)

// Settings locate Open vSwitch and name our bridges.
type Settings struct {
	// Database is the path of the database's unix socket.
	Database string
	// Management is the folder of BRIDGE.mgmt and of ovs-vswitchd's pid file.
	Management string
	// Control is the path of ovs-vswitchd's control socket. If empty, it is found by the pid file.
	Control string
	Rails   []RailSettings
	// Netns is the path of the bridges' network namespace. Empty means this process's own.
	Netns string
	Log   *slog.Logger
}

// RailSettings are a rail and its leaf.
type RailSettings struct {
	plan.Rail
	// Leaf is the leaf's address. It is invalid for unnumbered BGP, where the leaf is the router among the neighbours
	// of the bridge's interface.
	Leaf netip.Addr
	// SecondLeaf is the address of the leaf behind the second uplink.
	SecondLeaf netip.Addr
}

// plainPath matches paths that are a single word for every tool and contain no URL escape.
var plainPath = regexp.MustCompile(`^/[A-Za-z0-9._/+-]+$`)

func (s *Settings) check() error {
	for _, test := range []struct {
		name, path string
		optional   bool
	}{
		{"database socket", s.Database, false},
		{"management folder", s.Management, false},
		{"control socket", s.Control, true},
		{"network namespace", s.Netns, true},
	} {
		if !plainPath.MatchString(test.path) && (test.path != "" || !test.optional) {
			return fmt.Errorf("%s must be an absolute path of letters, digits and ._/+-, got %q", test.name,
				test.path)
		}
	}
	bridges := map[string]string{}
	for _, rail := range s.Rails {
		for _, link := range [][2]string{{"bridge", rail.Bridge}, {"uplink", rail.Uplink}, {"second uplink", rail.Second}} {
			if link[1] == "" && link[0] == "second uplink" {
				continue
			}
			if !attachment.IsLink(link[1]) {
				return fmt.Errorf("%s must be an interface name of up to 15 letters, digits and _.-, got %q of rail %s", link[0],
					link[1], rail.Name)
			}
		}
		if other, ok := bridges[rail.Bridge]; ok {
			return fmt.Errorf("rails %s and %s must have different bridges, both have %s", other, rail.Name, rail.Bridge)
		}
		bridges[rail.Bridge] = rail.Name
	}
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// management returns the path of a bridge's management socket, where ovs-vswitchd listens for OpenFlow.
func (s *Settings) management(bridge string) string {
	return filepath.Join(s.Management, bridge+".mgmt")
}
