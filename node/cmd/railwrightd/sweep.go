package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"

	"railwright/node/internal/metrics"
	"railwright/node/internal/tenants/kinds"
)

// sweep frees what machines hold that are off, until ctx ends. One process of a cluster does that.
func sweep(ctx context.Context, arguments []string, _ io.Writer) (int, error) {
	opts, _, err := parse("sweep", arguments, 0, "config", "metrics")
	if err != nil {
		return 0, err
	}
	// Not an address of a node, so unlike the daemon's it can be any.
	address := opts.metrics
	opts.metrics = ""
	read, err := shared(opts, "sweep")
	if err != nil {
		return 0, err
	}
	read.Log = slog.New(slog.NewJSONHandler(os.Stderr, nil))
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	held, served := metrics.NewHeld(), make(chan error, 1)
	if address == "" {
		served <- nil
	} else {
		listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", address)
		if err != nil {
			return 0, fmt.Errorf("listen for metrics: %w", err)
		}
		go func() {
			err := held.Serve(ctx, listener)
			stop(err)
			served <- err
		}()
	}
	if err := kinds.Sweep(ctx, read, held.Set); err != nil {
		return 0, err
	}
	return exitOK, <-served
}
