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

// Health reports the daemon's problems, a sentence each.
type Health interface {
	// LivenessProblems returns the problems of the daemon's own loops, which a restart cures.
	LivenessProblems() []string
	// ReadinessProblems returns what is missing to serve an ADD, which a restart does not cure.
	ReadinessProblems() []string
}

// Handler serves /metrics and, unless health is nil, /healthz and /readyz.
func (m *Metrics) Handler(health Health) http.Handler {
	paths := http.NewServeMux()
	paths.Handle("GET /metrics", promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{
		MaxRequestsInFlight: 4, Timeout: 10 * time.Second,
	}))
	if health == nil {
		return paths
	}
	paths.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { writeHealth(w, health.LivenessProblems()) })
	paths.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) { writeHealth(w, health.ReadinessProblems()) })
	return paths
}

func writeHealth(w http.ResponseWriter, problems []string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	if len(problems) == 0 {
		_, _ = fmt.Fprintln(w, "ok")
		return
	}
	w.WriteHeader(http.StatusServiceUnavailable)
	_, _ = fmt.Fprintln(w, strings.Join(problems, "\n"))
}

// Serve serves until ctx ends. health is as in Handler.
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
