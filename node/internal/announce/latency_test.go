package announce

import (
	"net/netip"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"
)

// TestLatency prints how long an address takes to reach the leaf's kernel and to leave it, and the cost of the waits.
// It asserts no time, because the machine may be busy.
func TestLatency(t *testing.T) {
	repeats, err := strconv.Atoi(os.Getenv("RAILWRIGHT_REPEATS"))
	if err != nil {
		t.Skip("measurement: set RAILWRIGHT_REPEATS to the number of addresses")
	}
	for _, combination := range combinations {
		t.Run(combination.name, func(t *testing.T) {
			fabric := newFabric(t, combination.version, combination.backend)
			announcer := fabric.announcer(t, combination.backend)
			// bgpd delays the routes of a session's first second, which is not measured here.
			time.Sleep(2 * time.Second)
			for rail, numbering := range []string{"unnumbered", "numbered"} {
				for _, family := range families {
					fabric.measure(t, announcer, rail, family, numbering, repeats)
				}
			}
			held := pods(0, 0, 90)
			fabric.sync(t, announcer, 0, held)
			fabric.wait(t, announcer, 0, held)
			began := time.Now()
			fabric.wait(t, announcer, 0, held)
			t.Logf("one look at %d advertised: %.2f ms", len(held), time.Since(began).Seconds()*1000)
		})
	}
}

func (f *fabric) measure(t *testing.T, announcer Announcer, rail int, family family, numbering string, repeats int) {
	var sync, waited, fib, gone []time.Duration
	for number := range repeats {
		index := 2 * number
		if !family.is4 {
			index++
		}
		prefix := pods(rail, index, 1)
		began := time.Now()
		f.sync(t, announcer, rail, prefix)
		sync = append(sync, time.Since(began))
		ended := make(chan time.Duration)
		go func() {
			_ = announcer.WaitAdvertised(t.Context(), f.rails[rail], prefix)
			ended <- time.Since(began)
		}()
		f.leaves[rail].awaitPrefixes(t, prefix, true)
		fib = append(fib, time.Since(began))
		waited = append(waited, <-ended)
		began = time.Now()
		f.sync(t, announcer, rail, nil)
		f.leaves[rail].awaitPrefixes(t, prefix, false)
		gone = append(gone, time.Since(began))
	}
	for _, test := range []struct {
		name  string
		times []time.Duration
	}{{"Sync", sync}, {"WaitAdvertised", waited}, {"in the leaf's kernel", fib}, {"withdrawn there", gone}} {
		slices.Sort(test.times)
		t.Logf("%s %s %-21s p50 %6.1f ms  p99 %6.1f ms  (%d)", numbering, family.name, test.name,
			ms(test.times[len(test.times)/2]), ms(test.times[len(test.times)*99/100]), len(test.times))
	}
}

// awaitPrefixes waits until the leaf's kernel has the prefixes, or none.
func (l *leaf) awaitPrefixes(t *testing.T, prefixes []netip.Prefix, there bool) {
	t.Helper()
	want := prefixes
	if !there {
		want = nil
	}
	for until := time.Now().Add(5 * time.Second); !slices.Equal(l.announcedPrefixes(t), want); time.Sleep(time.Millisecond) {
		if time.Now().After(until) {
			t.Fatalf("%v, present %v, not within 5 s", prefixes, there)
		}
	}
}

func ms(duration time.Duration) float64 { return duration.Seconds() * 1000 }
