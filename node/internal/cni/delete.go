package cni

import (
	"context"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	nodev1 "railwright/node/api/v1"
	"railwright/node/internal/tombstone"
)

// delete needs only the network's name, the container and the interface: the namespace and prevResult may be gone.
func (p plugin) delete(arguments *skel.CmdArgs) error {
	call, err := readCall(arguments)
	if err != nil {
		return err
	}
	daemon, away := connect(call.settings, once)
	if away != nil {
		return p.saveTombstone(call, away)
	}
	defer daemon.close()
	return p.undo(daemon, call, call.settings.Timeout)
}

// undo deletes this plugin's parts. If the daemon is unavailable, it saves the DEL for later. A refusal by the daemon
// is returned.
func (p plugin) undo(daemon *daemon, call call, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	_, err := daemon.Delete(ctx, &nodev1.DeleteRequest{Key: wireKey(call.key), Parts: p.wire()})
	if err == nil {
		return nil
	}
	if _, ok := problemOf(err); ok {
		return callFailure(err, call.settings)
	}
	return p.saveTombstone(call, callFailure(err, call.settings))
}

// saveTombstone writes a tombstone. DEL then succeeds, so that the pod does not hang in Terminating.
func (p plugin) saveTombstone(call call, cause *types.Error) error {
	err := tombstone.Write(call.settings.Tombstones, tombstone.Tombstone{
		Key: call.key, Parts: p.parts, Written: time.Now().UTC(),
	})
	if err != nil {
		return withHint(types.ErrIOFailure, "nothing was deleted, and the DEL cannot be saved: "+err.Error(), cause.Msg,
			"start railwrightd on this node, or make its stateDir writable; the runtime retries DEL")
	}
	return nil
}
