package announce

import (
	"testing"
	"time"
)

func TestPausesBetweenLooks(t *testing.T) {
	const ms = time.Millisecond
	for _, test := range []struct{ waited, took, want time.Duration }{
		{0, ms, holdTime},
		{holdTime - 20*ms, ms, 20 * ms},
		{holdTime - ms, ms, firstPause},
		{holdTime, 10 * ms, 30 * ms}, // bgpd is busy with looks for a quarter of the time at most
		{time.Second, ms, 50 * ms},
		{time.Minute, ms, lastPause},
	} {
		if got := pauseBetween(test.waited, test.took); got != test.want {
			t.Errorf("pause after %v with a look of %v: %v, want %v", test.waited, test.took, got, test.want)
		}
	}
}
