package config

import (
	"fmt"
	"net/netip"
	"slices"

	"railwright/node/internal/plan"
)

// marking is the treatment of the DSCP of pods' packets. Without it, the DSCP is trusted.
type marking struct {
	Rewrite *int  `json:"rewrite"`
	Allow   []int `json:"allow"`
	// CNP are the DSCPs of RoCE's congestion notifications. nil means the NICs' default.
	CNP *[]int `json:"cnp"`
}

const (
	highestDSCP = 63
	// defaultCNP is the DSCP that NICs set in congestion notifications.
	defaultCNP = 48
	maxRouters = 64
)

func (p *problems) marking(where string, written *marking) plan.Marking {
	if written == nil {
		return plan.Marking{}
	}
	if (written.Rewrite != nil) == (len(written.Allow) > 0) {
		p.add(where, "must have either rewrite: DSCP, set in every packet of a pod, or allow: [DSCP, ...], which refuses "+
			"all others; leave dscp out to trust the pods")
		return plan.Marking{}
	}
	cnp := []int{defaultCNP}
	if written.CNP != nil {
		cnp = *written.CNP
	}
	made := plan.Marking{Policy: plan.RefuseMarking, Allowed: p.dscps(where+".allow", written.Allow), CNP: p.dscps(where+".cnp", cnp)}
	if written.Rewrite != nil {
		made.Policy, made.DSCP = plan.RewriteMarking, p.dscp(where+".rewrite", *written.Rewrite)
	}
	return made
}

func (p *problems) dscps(where string, numbers []int) []uint8 {
	var all []uint8
	for i, number := range numbers {
		dscp := p.dscp(fmt.Sprintf("%s[%d]", where, i), number)
		if !slices.Contains(all, dscp) {
			all = append(all, dscp)
		}
	}
	return all
}

func (p *problems) dscp(where string, number int) uint8 {
	if number < 0 || number > highestDSCP {
		p.add(where, "must be a DSCP of 0 to %d, got %d", highestDSCP, number)
		return 0
	}
	return uint8(number)
}

// routers returns the routers whose errors reach pods: the configured ones, or else the leaves.
func (p *problems) routers(where string, written []string, leaves []netip.Addr) []netip.Prefix {
	if len(written) > maxRouters {
		p.add(where, "must have at most %d entries, got %d; use larger prefixes", maxRouters, len(written))
		return nil
	}
	var routers []netip.Prefix
	for i, text := range written {
		prefix, err := netip.ParsePrefix(text)
		switch {
		case err != nil || prefix != prefix.Masked() || prefix.Bits() == 0 || prefix.Addr().Is4In6():
			p.add(fmt.Sprintf("%s[%d]", where, i), "must be a prefix like 192.0.2.1/32 with addresses of "+
				"the fabric only, got %.80q", text)
		case !slices.Contains(routers, prefix):
			routers = append(routers, prefix)
		}
	}
	if len(written) == 0 {
		for _, leaf := range leaves {
			routers = append(routers, netip.PrefixFrom(leaf, leaf.BitLen()))
		}
	}
	return routers
}
