package metrics

import (
	"context"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	"railwright/node/internal/plan"
)

type health struct{ alive, ready []string }

func (h health) LivenessProblems() []string  { return h.alive }
func (h health) ReadinessProblems() []string { return h.ready }

func serve(t *testing.T, metrics *Metrics, health Health) func(path string) (int, string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- metrics.Serve(ctx, listener, health) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return func(path string) (int, string) {
		t.Helper()
		response, err := http.Get("http://" + listener.Addr().String() + path)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = response.Body.Close() }()
		body, _ := io.ReadAll(response.Body)
		return response.StatusCode, string(body)
	}
}

func TestScrapesHaveAnAddressWithoutProbes(t *testing.T) {
	at := serve(t, New(), nil)
	if status, body := at("/metrics"); status != http.StatusOK || !strings.Contains(body, "go_goroutines") {
		t.Errorf("/metrics: %d", status)
	}
	for _, path := range []string{"/healthz", "/readyz"} {
		if status, _ := at(path); status != http.StatusNotFound {
			t.Errorf("%s: %d", path, status)
		}
	}
}

func TestObservedValuesAreExportedAndOthersAbsent(t *testing.T) {
	metrics := New()
	two, yes := 2, true
	metrics.SetRails(map[string]Rail{
		"rail0": {
			Attachments: 3, FlowsWanted: 40, RoutesWanted: 6, SwitchReady: true, RoutesAnnounced: &two,
			SessionEstablished: &yes, CachedFlows: map[string]int{"hardware": 5, "software": 1},
			Dropped: map[plan.Reason]uint64{plan.DropSpoofed: 17, plan.Reason(99): 1},
		},
		"rail1": {Attachments: 1},
	})
	metrics.Step("add", "store", 3*time.Millisecond)
	metrics.Request("Add", "OK")
	metrics.Pass("rail0", false, time.Second)
	metrics.Repaired("rail0", "flows-lost", 40)
	metrics.Collected("namespace-gone")
	metrics.Tombstone("replayed")
	metrics.SetDamagedFiles(2)
	metrics.SetIgnored(3)
	metrics.SetHeld(1)
	status, body := serve(t, metrics, health{})("/metrics")
	if status != http.StatusOK {
		t.Fatal(status, body)
	}
	for _, line := range []string{
		`railwright_attachments{rail="rail0"} 3`, `railwright_routes_announced{rail="rail0"} 2`,
		`railwright_session_established{rail="rail0"} 1`, `railwright_cached_flows{rail="rail0",where="hardware"} 5`,
		`railwright_dropped_packets_total{rail="rail0",reason="spoofed"} 17`,
		`railwright_dropped_packets_total{rail="rail0",reason="unknown"} 1`,
		`railwright_switch_ready{rail="rail1"} 0`, `railwright_repairs_total{cause="flows-lost",rail="rail0"} 40`,
		`railwright_step_seconds_count{request="add",step="store"} 1`, `railwright_damaged_state_files 2`,
		`railwright_unheeded 3`, `railwright_held_addresses 1`,
		`railwright_pass_seconds_count{outcome="failed",rail="rail0"} 1`, `railwright_tombstones_total{outcome="replayed"} 1`,
	} {
		if !strings.Contains(body, line+"\n") {
			t.Errorf("missing: %s", line)
		}
	}
	for _, absent := range []string{`railwright_session_established{rail="rail1"}`, `railwright_flows_installed`} {
		if strings.Contains(body, absent) {
			t.Errorf("exported without a value: %s", absent)
		}
	}
}

func TestHealthEndpointsReturnReasons(t *testing.T) {
	door := serve(t, New(), health{ready: []string{"rail0: no session", "rail1: no bridge"}})
	if status, body := door("/healthz"); status != http.StatusOK || body != "ok\n" {
		t.Errorf("/healthz: %d %q", status, body)
	}
	if status, body := door("/readyz"); status != http.StatusServiceUnavailable || !strings.Contains(body, "rail1: no bridge\n") {
		t.Errorf("/readyz: %d %q", status, body)
	}
	if status, _ := door("/elsewhere"); status != http.StatusNotFound {
		t.Errorf("unknown path: %d", status)
	}
}
