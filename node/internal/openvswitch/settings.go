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

// Settings say where Open vSwitch is, and which of its bridges are ours.
type Settings struct {
	// Database is the path of its unix socket.
	Database string
	// Management is the folder of BRIDGE.mgmt and of ovs-vswitchd's pid file.
	Management string
	// Control is the path of ovs-vswitchd's control socket; empty: found by the pid file.
	Control string
	Rails   []RailSettings
	// Netns is the path of the network namespace that the bridges are in; empty: this process's own.
	Netns string
	Log   *slog.Logger
}

// RailSettings are a rail and its leaf.
type RailSettings struct {
	plan.Rail
	// Leaf's address; not valid for BGP unnumbered, where it is the router that the bridge's interface has as neighbour.
	Leaf netip.Addr
}

// plainPath keeps a path one word for every tool, and no URL escape.
var plainPath = regexp.MustCompile(`^/[A-Za-z0-9._/+-]+$`)

func (s *Settings) check() error {
	for _, test := range []struct {
		name, path string
		optional   bool
	}{
		{"the database's socket", s.Database, false},
		{"the management folder", s.Management, false},
		{"the control socket", s.Control, true},
		{"the network namespace's", s.Netns, true},
	} {
		if !plainPath.MatchString(test.path) && (test.path != "" || !test.optional) {
			return fmt.Errorf("%s path %q is not absolute, or has other characters than letters, digits and ._/+-", test.name,
				test.path)
		}
	}
	bridges := map[string]string{}
	for _, rail := range s.Rails {
		for _, link := range [][2]string{{"bridge", rail.Bridge}, {"uplink", rail.Uplink}} {
			if !attachment.IsLink(link[1]) {
				return fmt.Errorf("the %s %q of %s is not an interface name of up to 15 letters, digits and _.-", link[0],
					link[1], rail.Name)
			}
		}
		if other, ok := bridges[rail.Bridge]; ok {
			return fmt.Errorf("%s and %s have the same bridge %s; give each rail its own", other, rail.Name, rail.Bridge)
		}
		bridges[rail.Bridge] = rail.Name
	}
	if s.Log == nil {
		s.Log = slog.New(slog.DiscardHandler)
	}
	return nil
}

// management socket of a bridge: ovs-vswitchd listens there for OpenFlow.
func (s *Settings) management(bridge string) string {
	return filepath.Join(s.Management, bridge+".mgmt")
}
