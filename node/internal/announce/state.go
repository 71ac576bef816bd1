package announce

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"railwright/node/internal/announce/frrconfig"
)

// neighbor is what bgpd says of a leaf.
type neighbor struct {
	State                  string `json:"bgpState"`
	LastNotification       string `json:"lastNotificationReason"`
	LastReset              string `json:"lastResetDueTo"`
	ConnectionsEstablished uint64 `json:"connectionsEstablished"`
	Capabilities           struct {
		GracefulRestart string `json:"gracefulRestart"`
	} `json:"neighborCapabilities"`
	GracefulRestart struct {
		// EndOfRIB that was sent, by family: the leaf has deleted then what it kept of the session before.
		EndOfRIB map[string]bool `json:"endOfRibSend"`
	} `json:"gracefulRestartInfo"`
	Families map[string]struct {
		Sent int `json:"sentPrefixCounter"`
	} `json:"addressFamilyInfo"`
}

func (n neighbor) session(name string) Session {
	session := Session{Peer: name, Established: n.State == "Established", State: brief(n.State)}
	for _, family := range n.Families {
		session.Advertised += family.Sent
	}
	if !session.Established {
		// What the leaf said when it ended the session is the cause, as "Cease/Maximum Number of Prefixes Reached".
		for _, reason := range []string{n.LastNotification, n.LastReset} {
			if reason != "" {
				session.State += " (last end: " + brief(reason) + ")"
				break
			}
		}
	}
	return session
}

// keeps says whether the leaf keeps routes of a family that it heard in the session before: by graceful restart, until it
// hears the end of all that there is in this one.
func (n neighbor) keeps(of family) bool {
	restarts := strings.Contains(strings.ToLower(n.Capabilities.GracefulRestart), "received")
	return restarts && !n.GracefulRestart.EndOfRIB[of.name+"Unicast"]
}

// neighbors of bgpd by name. Empty as long as it has no configuration.
func (b bgpd) neighbors(ctx context.Context) (map[string]json.RawMessage, error) {
	const command = "show bgp neighbors json"
	text, err := b.ask(ctx, command)
	if err != nil {
		return nil, err
	}
	all := map[string]json.RawMessage{}
	return all, understand(command, text, &all)
}

// session of a rail among all neighbors.
func (r RailSettings) session(all map[string]json.RawMessage) (Session, error) {
	known, err := r.leafAmong(all)
	if err != nil {
		return Session{}, err
	}
	return known.session(r.neighbor()), nil
}

func (r RailSettings) leafAmong(all map[string]json.RawMessage) (neighbor, error) {
	raw, found := all[r.neighbor()]
	if !found {
		return neighbor{}, fmt.Errorf("%w: it has no neighbor %s, rail %s's leaf; give it one in FRR's configuration",
			ErrNotReady, r.neighbor(), r.Name)
	}
	var known neighbor
	return known, understand("show bgp neighbors json", string(raw), &known)
}

// sent gives the prefixes of a family that bgpd has written to the rail's leaf. A route counts once its update was made,
// not while it waits for its turn.
func (b bgpd) sent(ctx context.Context, rail RailSettings, family family) (map[netip.Prefix]bool, error) {
	command := fmt.Sprintf("show bgp %s unicast neighbors %s advertised-routes json", family.name, rail.neighbor())
	text, err := b.ask(ctx, command)
	if err != nil {
		return nil, err
	}
	var reply struct {
		Routes map[string]json.RawMessage `json:"advertisedRoutes"`
	}
	if err := understand(command, text, &reply); err != nil {
		return nil, err
	}
	sent := make(map[netip.Prefix]bool, len(reply.Routes))
	for text := range reply.Routes {
		if prefix, err := netip.ParsePrefix(text); err == nil {
			sent[prefix] = true
		}
	}
	return sent, nil
}

// whyNotSent looks for the reason that a prefix has not reached the leaf, in one sentence; source is how our routes
// enter BGP.
func (b bgpd) whyNotSent(ctx context.Context, rail RailSettings, prefix netip.Prefix, source string) (string, error) {
	all, err := b.neighbors(ctx)
	if err != nil {
		return "", err
	}
	session, err := rail.session(all)
	if err != nil {
		return "", err
	}
	if !session.Established {
		return fmt.Sprintf("the session with %s is %s; see that the leaf is up and its FRR configured", session.Peer, session.State), nil
	}
	command := fmt.Sprintf("show bgp %s unicast %s json", familyOf(prefix).name, prefix)
	text, err := b.ask(ctx, command)
	if err != nil {
		return "", err
	}
	var known struct {
		Paths []struct {
			Valid bool `json:"valid"`
		} `json:"paths"`
	}
	if err := understand(command, text, &known); err != nil {
		return "", err
	}
	switch {
	case len(known.Paths) == 0:
		return fmt.Sprintf("it has not come into BGP: see that bgpd %s with route map %s, and that the map permits it",
			source, frrconfig.RouteMap(rail.Name)), nil
	case !known.Paths[0].Valid:
		return "bgpd holds it for invalid: see that its configuration has `no bgp network import-check`", nil
	}
	return fmt.Sprintf("bgpd knows it but has not sent it to %s: see that the route map out for that neighbor permits it", session.Peer), nil
}

// understand JSON of bgpd's.
func understand(command, text string, into any) error {
	trimmed := strings.TrimSpace(text)
	if strings.HasPrefix(trimmed, "%") || trimmed == "" {
		return fmt.Errorf("%w: %q: it says %q", ErrNotReady, command, brief(trimmed))
	}
	if err := json.Unmarshal([]byte(trimmed), into); err != nil {
		var kind *json.UnmarshalTypeError
		if errors.As(err, &kind) {
			return fmt.Errorf("%q: bgpd's answer has %s where a %s was expected", command, kind.Value, kind.Type)
		}
		return fmt.Errorf("%q: bgpd's answer is not JSON: %s", command, brief(err.Error()))
	}
	return nil
}
