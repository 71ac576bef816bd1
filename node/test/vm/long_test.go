//go:build vm

package vm

import (
	"os"
	"time"
)

// long is what each change need not try: make test-long.
func long() bool { return os.Getenv("RAILWRIGHT_TEST_LONG") != "" }

// lies that a pod tells on the kernel's datapath, where it is not the number that each change tries.
func lies() []string {
	if long() {
		return []string{"100000"}
	}
	return nil
}

// longestRun of one machine; each takes 70 to 150 s of one core, and the host may have little to give.
func longestRun() time.Duration {
	if long() {
		return 3 * time.Hour
	}
	return 30 * time.Minute
}

// guestBound of a test inside, by the guest's own clock.
func guestBound() string {
	if long() {
		return "1h"
	}
	return "5m"
}
