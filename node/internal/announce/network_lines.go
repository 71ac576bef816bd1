package announce

import (
	"net/netip"
	"strconv"
	"strings"

	"railwright/node/internal/announce/frrconfig"
)

// networkLines are the `network` lines in bgpd's running configuration.
type networkLines struct {
	// instance is the AS number of bgpd's default instance as `router bgp` takes it, or "" if there is none.
	instance string
	asn      uint32
	// ours maps rails to the prefixes of lines with that rail's route map.
	ours map[string]map[netip.Prefix]bool
	// theirs maps prefixes to the operator's lines.
	theirs map[netip.Prefix]string
}

// parseNetworkLines parses `show running-config`. It reads only the default instance; a VRF's instance belongs to the
// operator.
func parseNetworkLines(text string, rails []RailSettings) networkLines {
	lines := networkLines{ours: map[string]map[netip.Prefix]bool{}, theirs: map[netip.Prefix]string{}}
	owner := map[string]string{}
	for _, rail := range rails {
		owner[frrconfig.RouteMap(rail.Name)] = rail.Name
		lines.ours[rail.Name] = map[netip.Prefix]bool{}
	}
	inside := false
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 || fields[0] == "!" {
			continue
		}
		if line[0] != ' ' {
			inside = lines.enter(fields)
			continue
		}
		if !inside || fields[0] != "network" || len(fields) < 2 {
			continue
		}
		prefix, err := netip.ParsePrefix(fields[1])
		if err != nil {
			continue
		}
		if len(fields) == 4 && fields[2] == "route-map" && owner[fields[3]] != "" {
			lines.ours[owner[fields[3]]][prefix] = true
		} else {
			lines.theirs[prefix] = strings.Join(fields, " ")
		}
	}
	return lines
}

// enter reports whether an unindented line begins the default instance. If it does, enter records its name and AS
// number.
func (n *networkLines) enter(arguments []string) bool {
	if len(arguments) < 3 || arguments[0] != "router" || arguments[1] != "bgp" {
		return false
	}
	// An AS number can be written 1.10, and a notation can follow it; `vrf` and `view` name another instance.
	if len(arguments) > 3 && arguments[3] != "as-notation" {
		return false
	}
	asn, ok := parseASN(arguments[2])
	if ok {
		n.instance, n.asn = arguments[2], asn
	}
	return ok
}

func parseASN(text string) (uint32, bool) {
	const longest = len("65535.65535")
	if len(text) > longest {
		return 0, false
	}
	if high, low, dotted := strings.Cut(text, "."); dotted {
		number, err := strconv.ParseUint(high, 10, 16)
		low16, lowErr := strconv.ParseUint(low, 10, 16)
		return uint32(number<<16 | low16), err == nil && lowErr == nil && number|low16 > 0
	}
	asn, err := strconv.ParseUint(text, 10, 32)
	return uint32(asn), err == nil && asn > 0
}
