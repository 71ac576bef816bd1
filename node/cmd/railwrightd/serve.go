package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"

	"k8s.io/client-go/dynamic"

	"railwright/node/internal/announce"
	"railwright/node/internal/collect"
	"railwright/node/internal/config"
	"railwright/node/internal/failpoint"
	"railwright/node/internal/metrics"
	"railwright/node/internal/nodehealth"
	"railwright/node/internal/openvswitch"
	"railwright/node/internal/reconcile"
	"railwright/node/internal/release"
	"railwright/node/internal/server"
	"railwright/node/internal/store"
	"railwright/node/internal/tenants/directory"
	"railwright/node/internal/tenants/kinds"
	"railwright/node/internal/tenants/kubernetes"
)

// serve serves the plugins until ctx ends.
func serve(ctx context.Context, arguments []string, out io.Writer) (int, error) {
	opts, _, err := parse("railwrightd", arguments, 0, "config", "node", "metrics", "log-level", "check-config", "version")
	if err != nil {
		return 0, err
	}
	if opts.version {
		_, err = fmt.Fprintln(out, "railwrightd "+release.Version)
		return exitOK, err
	}
	read, err := readConfig(opts)
	if err != nil {
		return 0, err
	}
	if opts.check {
		return printCheck(out, opts.config, read)
	}
	var level slog.Level
	if err := level.UnmarshalText([]byte(opts.logLevel)); err != nil {
		return 0, usageError{fmt.Errorf("--log-level must be debug, info, warn or error, got %.40q", opts.logLevel)}
	}
	log := slog.New(slog.NewJSONHandler(os.Stderr, &slog.HandlerOptions{Level: level})).With("node", read.Node)
	if failpoint.Armed {
		log.Warn("this build has failpoints and is for tests only")
	}
	unlock, err := lockState(read.StateFolder)
	if err != nil {
		return 0, err
	}
	defer unlock()
	return exitOK, serveWith(ctx, read, log)
}

func readConfig(opts options) (config.Config, error) {
	read, err := config.Read(opts.config, config.Own{Node: opts.node, Metrics: opts.metrics})
	if err == nil {
		err = announceSettings(read).Check()
	}
	if err != nil {
		return config.Config{}, usageError{err}
	}
	return read, nil
}

// printCheck checks the rights of this process for a valid file.
func printCheck(out io.Writer, file string, read config.Config) (int, error) {
	_, err := fmt.Fprintf(out, "%s: %d rails, valid\n", file, len(read.Rails))
	found := rightsFor(read)
	for _, problem := range slices.Concat(found.missing, found.unknown, found.away) {
		_, failed := fmt.Fprintln(out, "problem: "+problem)
		err = errors.Join(err, failed)
	}
	switch {
	case len(found.missing) > 0:
		return exitBad, err
	case len(found.unknown)+len(found.away) > 0:
		return exitFailure, err
	}
	return exitOK, err
}

func announceSettings(read config.Config) announce.Settings {
	settings := announce.Settings{Socket: read.FRR.BGPSocket, ASN: read.FRR.ASN}
	for _, rail := range read.EveryRail() {
		settings.Rails = append(settings.Rails, announce.RailSettings{
			Name: rail.Name, Bridge: rail.Bridge, Peer: rail.Leaf, SecondPeer: rail.SecondLeaf, Table: rail.Table, Prefixes: rail.Prefixes,
			MaxPrefixes: rail.MaxPrefixes, Retired: rail.Retired,
		})
	}
	return settings
}

// announcer is an Announcer with Close.
type announcer interface {
	announce.Announcer
	Close() error
}

func openAnnouncer(read config.Config) (announcer, error) {
	if read.FRR.Backend == config.Vty {
		return announce.NewVty(announceSettings(read))
	}
	return announce.NewKernelTable(announceSettings(read))
}

func switchSettings(read config.Config, log *slog.Logger) openvswitch.Settings {
	settings := openvswitch.Settings{
		Database: read.OpenVSwitch.Database, Management: read.OpenVSwitch.Management, Log: log,
	}
	for _, rail := range read.EveryRail() {
		settings.Rails = append(settings.Rails, openvswitch.RailSettings{Rail: rail.Rail, Leaf: rail.Leaf, SecondLeaf: rail.SecondLeaf})
	}
	return settings
}

// lockState locks a state folder, so that only one daemon uses it.
func lockState(folder string) (unlock func(), err error) {
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return nil, fmt.Errorf("create state folder: %w", err)
	}
	file, err := os.OpenFile(filepath.Join(folder, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("lock state folder: %w", err)
	}
	if err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("lock %s, which another railwrightd uses: %w", folder, err)
	}
	return func() { _ = file.Close() }, nil
}

// serveWith wires the parts. The servers end first, then the parts that they use.
func serveWith(ctx context.Context, read config.Config, log *slog.Logger) error {
	workCtx, stopWork := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWork()
	parts, closeAll, err := openParts(workCtx, read, log)
	if err != nil {
		return err
	}
	defer closeAll()
	plugins, err := server.Listen(ctx, read.Socket)
	if err != nil {
		return err
	}
	probes, scrapes, err := listenForScrapes(ctx, read)
	if err != nil {
		return errors.Join(err, plugins.Close())
	}
	reconciler := reconcile.New(parts)
	serveCtx, stopServing := context.WithCancelCause(ctx)
	defer stopServing(nil)
	var answering, working sync.WaitGroup
	working.Go(func() { reconciler.Run(workCtx) })
	answering.Go(func() {
		stopServing(server.New(reconciler, parts.Metrics, log).Serve(serveCtx, plugins, read.AllowedUIDs))
	})
	answering.Go(func() { stopServing(parts.Metrics.Serve(serveCtx, probes, reconciler)) })
	if scrapes != nil {
		answering.Go(func() { stopServing(parts.Metrics.Serve(serveCtx, scrapes, nil)) })
	}
	log.Info("serving", "socket", read.Socket, "health", read.Health.String(), "metrics", read.Metrics.String(), "rails", len(read.Rails),
		"attachments", len(parts.Store.All()), "tenants", read.Tenants.Kind, "frr", read.FRR.Backend)
	answering.Wait()
	stopWork()
	working.Wait()
	if cause := context.Cause(serveCtx); cause != nil && ctx.Err() == nil {
		return cause
	}
	log.Info("stopped; flows and routes stay")
	return nil
}

// listenForScrapes opens the listener of the probes and, if metrics have another address, the one of the scrapes.
func listenForScrapes(ctx context.Context, read config.Config) (probes, scrapes net.Listener, err error) {
	probes, err = (&net.ListenConfig{}).Listen(ctx, "tcp", read.Health.String())
	if err != nil {
		return nil, nil, fmt.Errorf("listen for probes: %w; use another `health` address", err)
	}
	if !read.Metrics.IsValid() || read.Metrics == read.Health {
		return probes, nil, nil
	}
	scrapes, err = (&net.ListenConfig{}).Listen(ctx, "tcp", read.Metrics.String())
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("listen for metrics: %w; use another `metrics` address", err), probes.Close())
	}
	return probes, scrapes, nil
}

func openParts(
	ctx context.Context, read config.Config, log *slog.Logger,
) (parts reconcile.Parts, closeAll func(), err error) {
	var closers []func()
	closeAll = func() {
		for i := range closers {
			closers[len(closers)-1-i]()
		}
	}
	defer func() {
		if err != nil {
			closeAll()
		}
	}()
	parts = reconcile.Parts{
		Config: read, Metrics: metrics.New(), Log: log, Links: links{}, Rights: func() []string { return lackingRights(read) },
		Tombstones: filepath.Join(read.StateFolder, "tombstones"),
	}
	parts.Store, err = openStore(read, parts.Metrics, log)
	if err != nil {
		return parts, closeAll, err
	}
	parts.Pods, err = collect.NewPods(read.NetnsFolders)
	if err != nil {
		return parts, closeAll, err
	}
	read, err = retire(read, parts.Store, parts.Pods.Boot())
	if err != nil {
		return parts, closeAll, err
	}
	parts.Config, parts.Forget = read, func(rail string) error { return forgetRail(read, rail) }
	err = openFabric(ctx, &parts, func(closer func()) { closers = append(closers, closer) })
	return parts, closeAll, err
}

// openFabric opens the announcer, the switch and the tenant directory, and passes their Close functions to closing.
func openFabric(ctx context.Context, parts *reconcile.Parts, closing func(func())) error {
	read, log := parts.Config, parts.Log
	routes, err := openAnnouncer(read)
	if err != nil {
		return usageError{err}
	}
	closing(func() {
		if err := routes.Close(); err != nil {
			log.Warn("cannot close the announcer", "error", err)
		}
	})
	parts.Announcer = routes
	openVSwitch, err := openvswitch.New(ctx, switchSettings(read, log))
	if err != nil {
		return usageError{err}
	}
	closing(openVSwitch.Close)
	parts.Switch = openVSwitch
	directory, notifier, err := openDirectory(ctx, read, log)
	if err != nil {
		return err
	}
	if notifier != nil {
		parts.Notifier = notifier
	}
	if err := openNode(ctx, parts, closing); err != nil {
		return err
	}
	closing(directory.Close)
	parts.Directory = directory
	return nil
}

// openNode opens the reporter of the Node, if there is one.
func openNode(ctx context.Context, parts *reconcile.Parts, closing func(func())) error {
	read := parts.Config
	if read.Tenants.Kind != config.Kubernetes {
		return nil
	}
	access, err := kubernetes.Config(read.Tenants.Kubeconfig)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(access)
	if err != nil {
		return err
	}
	reporter := nodehealth.New(client, read.Node, parts.Log)
	parts.Node = reporter
	ctx, cancel := context.WithCancel(ctx)
	var ending sync.WaitGroup
	ending.Go(func() { reporter.Run(ctx) })
	closing(func() {
		cancel()
		ending.Wait()
	})
	return nil
}

func openDirectory(ctx context.Context, read config.Config, log *slog.Logger) (*directory.Directory, kinds.PodNotifier, error) {
	return kinds.Open(ctx, directoryConfig(read, log))
}

func directoryConfig(read config.Config, log *slog.Logger) kinds.Config {
	var pods []netip.Prefix
	for _, rail := range read.EveryRail() {
		pods = append(pods, rail.Prefixes...)
	}
	return kinds.Config{
		Kind: string(read.Tenants.Kind), Node: read.Node, StateFolder: filepath.Join(read.StateFolder, "tenants"),
		Folder: read.Tenants.Folder, File: read.Tenants.File, Kubeconfig: read.Tenants.Kubeconfig, Log: log, Pods: pods,
	}
}

func openStore(read config.Config, counted *metrics.Metrics, log *slog.Logger) (*store.Store, error) {
	kept, damaged, err := store.Open(filepath.Join(read.StateFolder, "attachments"))
	for _, file := range damaged {
		log.Error("damaged state file; its attachment is not served any more", "kept_as", file.MovedTo,
			"error", file.Err)
	}
	counted.SetDamagedFiles(len(damaged))
	return kept, err
}

func railsFile(read config.Config) string { return filepath.Join(read.StateFolder, "rails.json") }

// retire finds the rails that this node served before and that are no longer configured, and remembers all rails that
// may be programmed from now on.
func retire(read config.Config, kept *store.Store, boot string) (config.Config, error) {
	before, err := config.RecallRails(railsFile(read))
	if err != nil {
		return read, err
	}
	read.RetiredRails, err = read.Retired(before, func(rail string) bool {
		return slices.ContainsFunc(kept.All(), func(record store.Record) bool { return record.Rail == rail && record.Boot == boot })
	})
	if err != nil {
		return read, usageError{err}
	}
	return read, config.RememberRails(railsFile(read), read.EveryRail())
}

// forgetRail forgets a retired rail that is cleaned up.
func forgetRail(read config.Config, name string) error {
	before, err := config.RecallRails(railsFile(read))
	if err != nil {
		return err
	}
	rest := slices.DeleteFunc(before, func(rail config.Rail) bool { return rail.Retired && rail.Name == name })
	return config.RememberRails(railsFile(read), rest)
}
