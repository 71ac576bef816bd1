package metrics

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Health answers for the daemon; each problem is one sentence. None: all is well.
type Health interface {
	// Alive is about the daemon's own loops: one that hangs is cured by a restart.
	Alive() []string
	// Ready is about what it needs to serve an ADD: no restart of it cures that.
	Ready() []string
}

// Handler of /metrics, /healthz and /readyz.
func (m *Metrics) Handler(health Health) http.Handler {
	paths := http.NewServeMux()
	paths.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		MaxRequestsInFlight: 4, Timeout: 10 * time.Second,
	}))
	paths.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { tell(w, health.Alive()) })
	paths.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { tell(w, health.Ready()) })
	return paths
}

func tell(w http.ResponseWriter, problems []string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if len(problems) == 0 {
		_, _ = fmt.Fprintln(w, "ok")
		return
	}
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = fmt.Fprintln(w, strings.Join(problems, "\n"))
}

// Serve until ctx ends.
func (m *Metrics) Serve(ctx context.Context, listener net.Listener, health Health) error {
	server := &http.Server{
		Handler: m.Handler(health), ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 15 * time.Second, IdleTimeout: time.Minute, MaxHeaderBytes: 16 << 10,
	}
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(ended)
		_ = server.Close()
	})
	err := server.Serve(listener)
	if !stop() {
		<-ended
	}
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}
