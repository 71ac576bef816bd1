//go:build vm

package vm

import (
	"os"
	"time"
)

// long reports whether the long tests run (make test-long). Changes need not run them.
func long() bool { return os.Getenv("RAILWRIGHT_TEST_LONG") != "" }

// guestArguments returns the guest's argument with the number of spoofed frames, or nil for the default.
func guestArguments() []string {
	if long() {
		return []string{"100000"}
	}
	return nil
}

// longestRun returns the time limit of a machine. A machine takes 70 to 180 s of one core, but on a busy host
// the tier runs at the lowest priority. A test that hangs ends by guestBound, since the guest's clock runs while it idles.
func longestRun() time.Duration {
	if long() {
		return 3 * time.Hour
	}
	return 75 * time.Minute
}

// guestBound returns the time limit of a test in the guest, by the guest's clock.
func guestBound() string {
	if long() {
		return "1h"
	}
	return "5m"
}
