package testlab

import (
	"testing"
	"time"
)

// Patience with what must come to pass on a machine that has other work. It tells only what hangs: nothing is asserted by
// it.
const Patience = 60 * time.Second

// Eventually waits until something holds, and says how long that took.
func Eventually(t testing.TB, name string, holds func() bool) time.Duration {
	t.Helper()
	return UntilRight(t, func() string {
		if holds() {
			return ""
		}
		return name
	})
}

// UntilRight waits until nothing is wrong any more; what still is ends the test.
func UntilRight(t testing.TB, wrong func() string) time.Duration {
	t.Helper()
	for began := time.Now(); ; time.Sleep(2 * time.Millisecond) {
		found := wrong()
		if found == "" {
			return time.Since(began)
		}
		if time.Since(began) > Patience {
			t.Fatalf("not within %v: %s", Patience, found)
		}
	}
}
