// Package kinds opens the tenant directory that a node's configuration asks for.
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

// Config of a node's part in the directory.
type Config struct {
	// Kind: local, folder or kubernetes.
	Kind string
	Node string
	// StateFolder is where this node keeps what it knows, for a restart; its own alone.
	StateFolder string
	// Folder that all nodes share, for the kind folder.
	Folder string
	// File of tenants and peerings, for the kind local; empty: none.
	File string
	// Kubeconfig for the kind kubernetes; empty: the pod's own service account.
	Kubeconfig string
	// Pods' prefixes of the node's rails: no more of a tenant's prefixes counts.
	Pods []netip.Prefix
	Log  *slog.Logger
}

// Teller tells those whose pod it is, where the directory has a place for that.
type PodNotifier interface {
	NotifyPod(pod attachment.Pod, reason, message string)
}

// Open the directory. It ends with ctx; Close waits for that. It does not wait for other nodes or servers. The teller is nil
// where the directory has none.
func Open(ctx context.Context, config Config) (*replica.Replica, PodNotifier, error) {
	store, err := open(config)
	if err != nil {
		return nil, nil, fmt.Errorf("tenant directory: %w", err)
	}
	teller, _ := store.(PodNotifier)
	opened, err := replica.Open(ctx, replica.Settings{
		Node: config.Node, Folder: config.StateFolder, Store: store, Log: config.Log, Pods: config.Pods,
	})
	return opened, teller, err
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
	return nil, fmt.Errorf("kind %.40q is not known; give local, folder or kubernetes", config.Kind)
}

// Forget a node that is off for good, for the kind folder: see folder.Forget. In Kubernetes, delete the Node.
func Forget(path, node string) (records int, err error) { return folder.Forget(path, node) }
