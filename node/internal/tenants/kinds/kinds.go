// Package kinds opens the tenant directory of a node's configuration.
package kinds

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"strings"

	"railwright/node/internal/attachment"
	"railwright/node/internal/tenants"
	"railwright/node/internal/tenants/directory"
	"railwright/node/internal/tenants/kubernetes"
	"railwright/node/internal/tenants/table"
)

// Config configures a node's part in the directory.
type Config struct {
	// Kind is local, folder or kubernetes.
	Kind string
	Node string
	// StateFolder is this node's own folder, which keeps its knowledge over restarts.
	StateFolder string
	// Folder is shared by all nodes. Only the kind folder uses it.
	Folder string
	// File lists tenants and peerings for the kind local. It may be empty.
	File string
	// Kubeconfig is for the kind kubernetes. If empty, the pod's service account is used.
	Kubeconfig string
	// Pods are the pods' prefixes of the node's rails. Prefixes of tenants count only within them.
	Pods []netip.Prefix
	Log  *slog.Logger
}

// PodNotifier sends events about pods to their users, if the directory supports that.
type PodNotifier interface {
	NotifyPod(pod attachment.Pod, reason, message string)
}

// Open opens the tenant directory. It runs until ctx is done or Close is called; Close waits until it has stopped. Open does
// not wait for other nodes or servers. The notifier is nil if the directory has none.
func Open(ctx context.Context, config Config) (*directory.Directory, PodNotifier, error) {
	store, err := OpenStore(config)
	if err != nil {
		return nil, nil, fmt.Errorf("tenant directory: %w", err)
	}
	notifier, _ := store.(PodNotifier)
	if running, ok := store.(runner); ok {
		go running.Run(ctx)
	}
	opened, err := directory.Open(ctx, directory.Settings{
		Node: config.Node, Folder: config.StateFolder, Store: store, Log: config.Log, Pods: config.Pods,
		Machine: readID("/etc/machine-id"), Boot: readID("/proc/sys/kernel/random/boot_id"),
	})
	return opened, notifier, err
}

// runner is a store with work of its own, such as to send events.
type runner interface{ Run(ctx context.Context) }

// readID returns the text of a file, or "" if there is none.
func readID(path string) string {
	text, err := os.ReadFile(path)
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text[:min(len(text), longestID)]))
}

const longestID = 128

// OpenStore opens the store of a configuration.
func OpenStore(config Config) (tenants.Store, error) {
	switch config.Kind {
	case "local":
		return table.New(config.File, nil)
	case "folder":
		return table.Open(config.Folder)
	case "kubernetes":
		access, err := kubernetes.Config(config.Kubeconfig)
		if err != nil {
			return nil, err
		}
		return kubernetes.New(access, config.Node, config.Pods, config.Log)
	}
	return nil, fmt.Errorf("kind must be local, folder or kubernetes, got %.40q", config.Kind)
}

// Forget gives up what a node holds that is permanently off, and returns the number of its machines. It must not be called
// for a running node.
func Forget(ctx context.Context, config Config, node string) (machines int, err error) {
	if err := tenants.CheckNode(node); err != nil {
		return 0, err
	}
	store, err := OpenStore(config)
	if err != nil {
		return 0, err
	}
	return directory.Forget(ctx, store, node)
}

// RaiseEpoch begins a new epoch after the store was restored from a backup. nodes names those that joined after it.
func RaiseEpoch(ctx context.Context, config Config, nodes []string) (id string, err error) {
	store, err := OpenStore(config)
	if err != nil {
		return "", err
	}
	return directory.RaiseEpoch(ctx, store, nodes)
}

// Sweep frees what machines hold that are off, until ctx ends. report is as in kubernetes.Store.Sweep.
func Sweep(ctx context.Context, config Config, report func(held map[string]int)) error {
	store, err := OpenStore(config)
	if err != nil {
		return err
	}
	swept, ok := store.(*kubernetes.Store)
	if !ok {
		return fmt.Errorf("sweep is for tenants of kind kubernetes, got %.40q", config.Kind)
	}
	swept.Sweep(ctx, config.Log, report)
	return nil
}
