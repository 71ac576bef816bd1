package testlab

import (
	"testing"
	"time"
)

// Patience is the time limit for conditions that must become true, also on a busy machine. It only detects hangs: no
// test asserts a duration with it.
const Patience = 60 * time.Second

// Eventually waits until holds returns true and returns the time that it waited. It fails the test after Patience.
func Eventually(t testing.TB, name string, holds func() bool) time.Duration {
	t.Helper()
	return UntilRight(t, func() string {
		if holds() {
			return ""
		}
		return name
	})
}

// UntilRight waits until wrong returns "" and returns the time that it waited. After Patience it fails the test with
// what wrong returned last. It rests as long as each look took: many looks start a program, and would otherwise keep a
// core from what they wait for.
func UntilRight(t testing.TB, wrong func() string) time.Duration {
	t.Helper()
	for began, looked := time.Now(), time.Now(); ; looked = time.Now() {
		found := wrong()
		if found == "" {
			return time.Since(began)
		}
		if time.Since(began) > Patience {
			t.Fatalf("not within %v: %s", Patience, found)
		}
		time.Sleep(min(max(2*time.Millisecond, time.Since(looked)), 250*time.Millisecond))
	}
}
