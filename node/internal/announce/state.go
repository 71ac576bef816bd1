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

// neighbor is bgpd's state of a leaf.
type neighbor struct {
	State                  string `json:"bgpState"`
	LastNotification       string `json:"lastNotificationReason"`
	LastReset              string `json:"lastResetDueTo"`
	ConnectionsEstablished uint64 `json:"connectionsEstablished"`
	Capabilities           struct {
		GracefulRestart string `json:"gracefulRestart"`
	} `json:"neighborCapabilities"`
	GracefulRestart struct {
		// EndOfRIB holds the families whose end of routes was sent. The leaf then drops the stale routes of the session
		// before.
		EndOfRIB map[string]bool `json:"endOfRibSend"`
	} `json:"gracefulRestartInfo"`
	// BFD is empty without BFD.
	BFD struct {
		Status string `json:"status"`
	} `json:"peerBfdInfo"`
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
		// The leaf's notification is the cause, such as "Cease/Maximum Number of Prefixes Reached".
		for _, reason := range []string{n.LastNotification, n.LastReset} {
			if reason != "" {
				session.State += " (last end: " + brief(reason) + ")"
				break
			}
		}
		if n.BFD.Status != "" && n.BFD.Status != "Up" {
			session.State += ", BFD " + brief(n.BFD.Status)
			session.WaitsForBFD = true
		}
	}
	return session
}

// keeps reports whether the leaf still keeps routes of the session before: by graceful restart it does until it
// receives the end of this session's routes.
func (n neighbor) keeps(of family) bool {
	restarts := strings.Contains(strings.ToLower(n.Capabilities.GracefulRestart), "received")
	return restarts && !n.GracefulRestart.EndOfRIB[of.name+"Unicast"]
}

// neighbors returns bgpd's neighbors by name. The map is empty until bgpd has a configuration.
func (b bgpd) neighbors(ctx context.Context) (map[string]json.RawMessage, error) {
	const command = "show bgp neighbors json"
	text, err := b.query(ctx, command)
	if err != nil {
		return nil, err
	}
	all := map[string]json.RawMessage{}
	return all, decode(command, text, &all)
}

// session returns the session of a rail from all neighbors.
func (r RailSettings) session(all map[string]json.RawMessage) (Session, error) {
	var sessions []Session
	for _, name := range r.neighbors() {
		known, err := r.leafAmong(all, name)
		if err != nil {
			return Session{}, err
		}
		sessions = append(sessions, known.session(name))
	}
	if len(sessions) == 2 {
		sessions[0].Second = &sessions[1]
	}
	return sessions[0], nil
}

func (r RailSettings) leafAmong(all map[string]json.RawMessage, name string) (neighbor, error) {
	raw, found := all[name]
	if !found {
		return neighbor{}, fmt.Errorf("%w: no neighbor %s, a leaf of rail %s; add it to FRR's configuration",
			ErrNotReady, name, r.Name)
	}
	var known neighbor
	return known, decode("show bgp neighbors json", string(raw), &known)
}

// sentPrefixes counts for each prefix of a family to how many of the rail's leaves bgpd has sent it, and returns how
// many of them have a session. With two leaves it asks those that have one, or both if none has.
func (b bgpd) sentPrefixes(ctx context.Context, rail RailSettings, family family) (map[netip.Prefix]int, int, error) {
	leaves := rail.neighbors()
	if len(leaves) > 1 {
		all, err := b.neighbors(ctx)
		if err != nil {
			return nil, 0, err
		}
		session, err := rail.session(all)
		if err != nil {
			return nil, 0, err
		}
		switch {
		case session.Established && !session.Second.Established:
			leaves = leaves[:1]
		case !session.Established && session.Second.Established:
			leaves = leaves[1:]
		}
	}
	count := map[netip.Prefix]int{}
	for _, leaf := range leaves {
		sent, err := b.sentTo(ctx, leaf, family)
		if err != nil {
			return nil, 0, err
		}
		for prefix := range sent {
			count[prefix]++
		}
	}
	return count, len(leaves), nil
}

// sentTo returns the prefixes of a family that bgpd has sent to a leaf. A route counts once its update is written, not
// while it is queued.
func (b bgpd) sentTo(ctx context.Context, leaf string, family family) (map[netip.Prefix]bool, error) {
	command := fmt.Sprintf("show bgp %s unicast neighbors %s advertised-routes json", family.name, leaf)
	text, err := b.query(ctx, command)
	if err != nil {
		return nil, err
	}
	var reply struct {
		Routes map[string]json.RawMessage `json:"advertisedRoutes"`
	}
	if err := decode(command, text, &reply); err != nil {
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

// explainNotSent returns the reason that a prefix has not reached the leaf, as a sentence. source describes how our
// routes enter BGP.
func (b bgpd) explainNotSent(ctx context.Context, rail RailSettings, prefix netip.Prefix, source string) (string, error) {
	all, err := b.neighbors(ctx)
	if err != nil {
		return "", err
	}
	session, err := rail.session(all)
	if err != nil {
		return "", err
	}
	if !session.Established {
		check := "the leaf is up and its FRR is configured"
		if session.WaitsForBFD {
			check = "the leaf runs BFD; if it does, remove the neighbor's bfd line and enter it again"
		}
		return fmt.Sprintf("session with %s is %s; check that %s", session.Peer, session.State, check), nil
	}
	command := fmt.Sprintf("show bgp %s unicast %s json", familyOf(prefix).name, prefix)
	text, err := b.query(ctx, command)
	if err != nil {
		return "", err
	}
	var known struct {
		Paths []struct {
			Valid bool `json:"valid"`
		} `json:"paths"`
	}
	if err := decode(command, text, &known); err != nil {
		return "", err
	}
	switch {
	case len(known.Paths) == 0:
		return fmt.Sprintf("it is not in BGP; check that bgpd %s with route map %s, and that the map permits it",
			source, frrconfig.RouteMap(rail.Name)), nil
	case !known.Paths[0].Valid:
		return "bgpd considers it invalid; check that its configuration has `no bgp network import-check`", nil
	}
	return fmt.Sprintf("bgpd has not sent it to %s; check that the neighbor's outbound route map permits it", session.Peer), nil
}

// decode parses a JSON reply of bgpd.
func decode(command, text string, into any) error {
	trimmed := strings.TrimSpace(text)
	if strings.HasPrefix(trimmed, "%") || trimmed == "" {
		return fmt.Errorf("%w: %q returned %q", ErrNotReady, command, brief(trimmed))
	}
	if err := json.Unmarshal([]byte(trimmed), into); err != nil {
		var kind *json.UnmarshalTypeError
		if errors.As(err, &kind) {
			return fmt.Errorf("%q: reply must have a %s, got %s", command, kind.Type, kind.Value)
		}
		return fmt.Errorf("%q: reply must be JSON: %s", command, brief(err.Error()))
	}
	return nil
}
