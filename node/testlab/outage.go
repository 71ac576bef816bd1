package testlab

import "time"

const (
	// usualStart of ovs-vswitchd, until it takes flows: the median of 160 that were measured (scripts/measured/node-network/measure-switch-restarts).
	usualStart = 250 * time.Millisecond
	// lossAfter it, until the daemon has programmed the flows again: 0.24 s at most of those, where no session ended twice.
	lossAfter = time.Second
)

// MostOutage of pods by a restart of ovs-vswitchd, which was away so long: that and 1 s more. Where others have the cores,
// Open vSwitch's own start says by how much everything takes longer.
func MostOutage(away time.Duration) time.Duration {
	return away + time.Duration(float64(lossAfter)*max(1, float64(away)/float64(usualStart)))
}
