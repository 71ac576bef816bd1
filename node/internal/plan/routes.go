package plan

import (
	"net/netip"
	"slices"

	"railwright/node/internal/attachment"
)

// Routes returns the routes that the rail announces, sorted and without duplicates. Attachments that want flows and got
// none are not announced: the leaf would send traffic that is then dropped.
func Routes(rail Rail, attachments []attachment.Attachment, left []Unserved) []netip.Prefix {
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
