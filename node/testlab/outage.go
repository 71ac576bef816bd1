package testlab

import "time"

const (
	// usualStart is the time from the start of ovs-vswitchd until it accepts flows: the median of 160 measured starts
	// (scripts/measured/node-network/measure-switch-restarts).
	usualStart = 250 * time.Millisecond
	// lossAfter is the limit from then until the daemon has programmed the flows again. The maximum in those
	// measurements was 0.24 s where no session ended twice.
	lossAfter = time.Second
)

// MaxOutage returns the limit for the outage of pods after ovs-vswitchd was down for the given time: that time plus 1
// s. On a busy machine, where ovs-vswitchd is down for longer than usualStart, the second grows in proportion.
func MaxOutage(away time.Duration) time.Duration {
	return away + time.Duration(float64(lossAfter)*max(1, float64(away)/float64(usualStart)))
}
