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
	for _, unserved := range left {
		unreachable[unserved.Key] = true
	}
	var prefixes []netip.Prefix
	for _, att := range attachments {
		if att.Rail == rail.Name && !unreachable[att.Key] {
			prefixes = append(prefixes, att.Prefixes()...)
		}
	}
	slices.SortFunc(prefixes, netip.Prefix.Compare)
	return slices.Compact(prefixes)
}
