package lab

import (
	"testing"
	"time"
)

// TestOutageExcludesTheFinalWait checks that the final wait for lost datagrams does not count as an outage.
func TestOutageExcludesTheFinalWait(t *testing.T) {
	began := time.Now()
	for name, test := range map[string]struct {
		lost func(number int) bool
		want time.Duration
	}{
		"none is lost":       {func(int) bool { return false }, probeEvery},
		"some are lost":      {func(number int) bool { return number > 20 && number <= 50 }, 31 * probeEvery},
		"the first are lost": {func(number int) bool { return number <= 30 }, 31 * probeEvery},
		"the last are lost":  {func(number int) bool { return number > 80 }, 20 * probeEvery},
		"all are lost":       {func(int) bool { return true }, 100 * probeEvery},
	} {
		const sent = 100
		ceased, back := began.Add(sent*probeEvery), map[uint64]time.Time{}
		for number := 1; number <= sent; number++ {
			if !test.lost(number) {
				back[uint64(number)] = began.Add(time.Duration(number) * probeEvery)
			}
		}
		if found := outage(began, ceased, sent, back); found != test.want {
			t.Errorf("%s: outage is %v, want %v", name, found, test.want)
		}
	}
	if found := outage(began, began.Add(time.Second), 1, map[uint64]time.Time{1: began.Add(3 * time.Second)}); found != 3*time.Second {
		t.Errorf("late answer: outage is %v", found)
	}
}
