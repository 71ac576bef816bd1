package plan

import (
	"net/netip"
	"slices"

	"railwright/node/internal/attachment"
)

// Routes that the rail announces, sorted, each once. An attachment that wants flows and got none is not announced: the
// leaf would send here what is then dropped.
func Routes(rail Rail, attachments []attachment.Attachment, left []Left) []netip.Prefix {
	unreachable := map[attachment.Key]bool{}
	for _, one := range left {
		unreachable[one.Key] = true
	}
	var prefixes []netip.Prefix
	for _, one := range attachments {
		if one.Rail == rail.Name && !unreachable[one.Key] {
			prefixes = append(prefixes, one.Prefixes()...)
		}
	}
	slices.SortFunc(prefixes, netip.Prefix.Compare)
	return slices.Compact(prefixes)
}
