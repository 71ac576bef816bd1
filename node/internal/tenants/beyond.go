package tenants

import (
	"fmt"
	"net/netip"
	"strings"
)

// Beyond returns a Fault for each prefix of a Tenant that is not within the pods' prefixes. Addresses beyond them
// belong to leaves and hosts, which a pod with such an address could reach; no tenant gets them. Without pods' prefixes
// there are no faults.
func Beyond(policy Policy, pods []netip.Prefix) []Fault {
	var faults []Fault
	for _, tenant := range policy.Tenants {
		for _, prefix := range tenant.Prefixes {
			if pods == nil || tenant.Fault != "" || CheckPrefix(prefix) != nil || isWithin(prefix, pods) {
				continue
			}
			faults = append(faults, Fault{tenant.Name, fmt.Sprintf("prefix %s of tenant %.80s exceeds the pods' prefixes of the "+
				"rails here (%s); the part beyond them is ignored", prefix, tenant.Name, summarize(pods))})
		}
	}
	return faults
}

func isWithin(prefix netip.Prefix, pods []netip.Prefix) bool {
	common := Common([]netip.Prefix{prefix}, pods)
	return len(common) == 1 && common[0] == prefix
}

func summarize(prefixes []netip.Prefix) string {
	const limit = 4
	var texts []string
	for _, prefix := range prefixes[:min(len(prefixes), limit)] {
		texts = append(texts, prefix.String())
	}
	if more := len(prefixes) - limit; more > 0 {
		texts = append(texts, fmt.Sprintf("%d more", more))
	}
	return strings.Join(texts, ", ")
}
