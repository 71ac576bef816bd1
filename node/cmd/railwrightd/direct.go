package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"railwright/node/internal/config"
	"railwright/node/internal/openvswitch"
	"railwright/node/internal/tenants/kinds"
)

// The verbs in this file need no daemon; they read the state themselves.

const (
	lookBound    = 5 * time.Second
	connectPause = 20 * time.Millisecond
)

// cachedFlow is an entry of `flows --json`.
type cachedFlow struct {
	InPort      string   `json:"in_port"`
	Offloaded   bool     `json:"offloaded"`
	Layer       string   `json:"layer"`
	Why         string   `json:"why,omitempty"`
	Packets     uint64   `json:"packets"`
	Bytes       uint64   `json:"bytes"`
	UsedSeconds *float64 `json:"used_s"`
	Match       string   `json:"match"`
	Actions     string   `json:"actions"`
}

// flows prints the datapath's cached flows and where they run.
func flows(ctx context.Context, arguments []string, out io.Writer) (int, error) {
	opts, _, err := parse("flows", arguments, 0, "config", "json")
	if err != nil {
		return 0, err
	}
	read, err := readConfig(opts)
	if err != nil {
		return 0, err
	}
	ctx, cancel := context.WithTimeout(ctx, lookBound)
	defer cancel()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelError}))
	openVSwitch, err := openvswitch.NewReader(ctx, switchSettings(read, log))
	if err != nil {
		return 0, usageError{err}
	}
	defer openVSwitch.Close()
	cached, err := openVSwitch.Datapath(ctx)
	for err != nil && ctx.Err() == nil {
		// The client is still connecting.
		time.Sleep(connectPause)
		cached, err = openVSwitch.Datapath(ctx)
	}
	if err != nil {
		return 0, err
	}
	if opts.json {
		return exitOK, printFlowsJSON(out, cached)
	}
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	row(table, "IN PORT", "RUNS IN", "PACKETS", "BYTES", "WHY NOT IN HARDWARE", "MATCH -> ACTIONS")
	for _, flow := range cached {
		where := flow.Layer
		if flow.Offloaded {
			where = "hardware (" + flow.Layer + ")"
		}
		row(table, plain(flow.InPort), where, fmt.Sprint(flow.Packets), fmt.Sprint(flow.Bytes), plain(flow.Reason),
			plain(flow.Match)+" -> "+plain(flow.Actions))
	}
	return exitOK, table.Flush()
}

// plain replaces unprintable characters for a terminal, because an interface name can contain any byte.
func plain(text string) string {
	return strings.Map(func(letter rune) rune {
		if unicode.IsPrint(letter) {
			return letter
		}
		return '?'
	}, text)
}

func printFlowsJSON(out io.Writer, cached []openvswitch.CachedFlow) error {
	all := make([]cachedFlow, 0, len(cached))
	for _, flow := range cached {
		entry := cachedFlow{
			InPort: flow.InPort, Offloaded: flow.Offloaded, Layer: flow.Layer, Why: flow.Reason, Packets: flow.Packets,
			Bytes: flow.Bytes, Match: flow.Match, Actions: flow.Actions,
		}
		if flow.UsedSeconds >= 0 {
			entry.UsedSeconds = &flow.UsedSeconds
		}
		all = append(all, entry)
	}
	return json.NewEncoder(out).Encode(all)
}

// forget declares a node permanently off, so that others can use its addresses.
func forget(ctx context.Context, arguments []string, out io.Writer) (int, error) {
	opts, operands, err := parse("forget", arguments, 1, "config")
	if err != nil {
		return 0, err
	}
	read, err := shared(opts, "forget")
	if err != nil {
		return 0, err
	}
	machines, err := kinds.Forget(ctx, read, operands[0])
	if err != nil {
		return 0, err
	}
	_, err = fmt.Fprintf(out, "forgot %s: %d machines held addresses\n", operands[0], machines)
	return exitOK, err
}

// epoch begins a new epoch of the tenant directory after it was restored from a backup. Its operand names the nodes that joined after
// the backup, with commas.
func epoch(ctx context.Context, arguments []string, out io.Writer) (int, error) {
	opts, operands, err := parse("epoch", arguments, 1, "config")
	if err != nil {
		return 0, err
	}
	read, err := shared(opts, "epoch")
	if err != nil {
		return 0, err
	}
	var nodes []string
	if operands[0] != "none" {
		nodes = strings.Split(operands[0], ",")
	}
	id, err := kinds.RaiseEpoch(ctx, read, nodes)
	if err != nil {
		return 0, err
	}
	_, err = fmt.Fprintf(out, "began epoch %s; addresses are claimed again once every node has published in it\n", id)
	return exitOK, err
}

// shared returns the configuration of a directory that nodes share.
func shared(opts options, verb string) (kinds.Config, error) {
	read, err := readConfig(opts)
	if err != nil {
		return kinds.Config{}, err
	}
	if read.Tenants.Kind == config.Local {
		return kinds.Config{}, usageError{fmt.Errorf("%s needs tenants of kind %s or %s, got %s", verb, config.Folder, config.Kubernetes,
			read.Tenants.Kind)}
	}
	return directoryConfig(read, nil), nil
}
