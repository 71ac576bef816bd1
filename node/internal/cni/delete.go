package cni

import (
	"context"
	"time"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	nodev1 "railwright/node/api/v1"
	"railwright/node/internal/tombstone"
)

// delete needs the configuration's name, the container and the interface alone: the namespace may be gone, and
// prevResult with the runtime's cache.
func (p plugin) delete(arguments *skel.CmdArgs) error {
	call, err := readCall(arguments)
	if err != nil {
		return err
	}
	daemon, away := connect(call.settings, once)
	if away != nil {
		return p.bury(call, away)
	}
	defer daemon.close()
	return p.undo(daemon, call, call.settings.Timeout)
}

// undo this plugin's parts, now or, where the daemon cannot be had, when it is back. A refusal by the daemon itself is
// the caller's.
func (p plugin) undo(daemon *daemon, call call, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(context.Background(), timeout)
	defer cancel()
	_, err := daemon.Delete(ctx, &nodev1.DeleteRequest{Key: wireKey(call.key), Parts: p.wire()})
	if err == nil {
		return nil
	}
	if _, ok := answered(err); ok {
		return callFailure(err, call.settings)
	}
	return p.bury(call, callFailure(err, call.settings))
}

// bury leaves a tombstone. DEL then succeeds, so that the pod does not hang in Terminating.
func (p plugin) bury(call call, cause *types.Error) error {
	err := tombstone.Write(call.settings.Tombstones, tombstone.Tombstone{
		Key: call.key, Parts: p.parts, Written: time.Now().UTC(),
	})
	if err != nil {
		return withHint(types.ErrIOFailure, "nothing was deleted and the DEL could not be kept: "+err.Error(), cause.Msg,
			"start railwrightd on this node, or make its stateDir writable; the runtime tries DEL again")
	}
	return nil
}
