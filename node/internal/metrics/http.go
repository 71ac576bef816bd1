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
	paths.HandleFunc("GET /healthz", func(answer http.ResponseWriter, _ *http.Request) { tell(answer, health.Alive()) })
	paths.HandleFunc("GET /readyz", func(answer http.ResponseWriter, _ *http.Request) { tell(answer, health.Ready()) })
	return paths
}

func tell(answer http.ResponseWriter, problems []string) {
	answer.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if len(problems) == 0 {
		_, _ = fmt.Fprintln(answer, "ok")
		return
	}
	answer.WriteHeader(http.StatusServiceUnavailable)
	_, _ = fmt.Fprintln(answer, strings.Join(problems, "\n"))
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
