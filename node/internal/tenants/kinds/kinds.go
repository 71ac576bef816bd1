// Package kinds opens the tenant directory of a node's configuration.
package kinds

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"

	"railwright/node/internal/attachment"
	"railwright/node/internal/tenants"
	"railwright/node/internal/tenants/folder"
	"railwright/node/internal/tenants/kubernetes"
	"railwright/node/internal/tenants/local"
	"railwright/node/internal/tenants/replica"
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

// Open opens the tenant directory. The replica runs until ctx is done or Close is called; Close waits until it has
// stopped. Open does not wait for other nodes or servers. The notifier is nil if the directory has none.
func Open(ctx context.Context, config Config) (*replica.Replica, PodNotifier, error) {
	store, err := open(config)
	if err != nil {
		return nil, nil, fmt.Errorf("tenant directory: %w", err)
	}
	notifier, _ := store.(PodNotifier)
	opened, err := replica.Open(ctx, replica.Settings{
		Node: config.Node, Folder: config.StateFolder, Store: store, Log: config.Log, Pods: config.Pods,
	})
	return opened, notifier, err
}

func open(config Config) (tenants.Store, error) {
	switch config.Kind {
	case "local":
		return &local.Store{File: config.File}, nil
	case "folder":
		return folder.New(config.Folder), nil
	}
	if config.Kind == "kubernetes" {
		access, err := kubernetes.Config(config.Kubeconfig)
		if err != nil {
			return nil, err
		}
		return kubernetes.New(access, config.Node, config.Pods, config.Log)
	}
	return nil, fmt.Errorf("kind must be local, folder or kubernetes, got %.40q", config.Kind)
}

// Forget declares a node permanently off, for the kind folder; see folder.Forget. In Kubernetes, delete the Node
// instead.
func Forget(path, node string) (records int, err error) { return folder.Forget(path, node) }
