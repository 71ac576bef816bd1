package tenants

import (
	"fmt"
	"net/netip"
	"strings"
)

// Beyond tells of each prefix of a Tenant that does not lie in the pods' prefixes: what lies beyond is nobody's. Leaves and
// hosts have their addresses there, and a pod of a tenant that held these would reach them, and they it. Without pods'
// prefixes nothing is beyond them.
func Beyond(policy Policy, pods []netip.Prefix) []Fault {
	var faults []Fault
	for _, tenant := range policy.Tenants {
		for _, prefix := range tenant.Prefixes {
			if pods == nil || tenant.Fault != "" || CheckPrefix(prefix) != nil || within(prefix, pods) {
				continue
			}
			faults = append(faults, Fault{tenant.Name, fmt.Sprintf("%s of tenant %.80s reaches beyond the pods' prefixes of the "+
				"rails here (%s), where leaves and hosts are: that part is nobody's", prefix, tenant.Name, listed(pods))})
		}
	}
	return faults
}

func within(prefix netip.Prefix, pods []netip.Prefix) bool {
	common := Common([]netip.Prefix{prefix}, pods)
	return len(common) == 1 && common[0] == prefix
}

func listed(prefixes []netip.Prefix) string {
	const most = 4
	var texts []string
	for _, prefix := range prefixes[:min(len(prefixes), most)] {
		texts = append(texts, prefix.String())
	}
	if more := len(prefixes) - most; more > 0 {
		texts = append(texts, fmt.Sprintf("%d more", more))
	}
	return strings.Join(texts, ", ")
}
