package main

import (
	"slices"
	"strings"
	"testing"
	"time"

	"railwright/node/testlab/railnode"
)

// BenchmarkAttachAndDetach measures the daemon's time for sequential ADDs and DELs with 100 attachments, and its
// memory.
func BenchmarkAttachAndDetach(b *testing.B) {
	lab := newLab(b, railnode.NewFRR)
	lab.restart()
	pods := lab.bulk(100, 101)
	lab.all(pods[1:], func(p *pod) error { return lab.add(p) })
	before := lab.Resident(b) >> 10
	var adds, deletes []time.Duration
	for b.Loop() {
		began := time.Now()
		if err := lab.add(pods[0]); err != nil {
			b.Fatal(err, detailsOf(err))
		}
		adds = append(adds, time.Since(began))
		began = time.Now()
		if err := lab.remove(pods[0]); err != nil {
			b.Fatal(err)
		}
		deletes = append(deletes, time.Since(began))
	}
	b.StopTimer()
	for name, times := range map[string][]time.Duration{"ADD": adds, "DEL": deletes} {
		slices.Sort(times)
		b.ReportMetric(float64(times[len(times)/2].Microseconds())/1000, name+"-p50-ms")
		b.ReportMetric(float64(times[len(times)*99/100].Microseconds())/1000, name+"-p99-ms")
	}
	for _, line := range strings.Split(lab.scrape(b, "/metrics"), "\n") {
		if strings.HasPrefix(line, "railwright_step_seconds_sum") || strings.HasPrefix(line, "railwright_step_seconds_count") {
			b.Log(line)
		}
	}
	b.ReportMetric(float64(before), "KiB-before")
	b.ReportMetric(float64(lab.Resident(b)>>10), "KiB-after")
}
