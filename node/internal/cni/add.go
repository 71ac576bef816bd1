package cni

import (
	"io"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/containernetworking/cni/pkg/ns"
	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	nodev1 "railwright/node/api/v1"
	"railwright/node/internal/attachment"
)

// undoTimeout bounds the cleanup after a failed ADD: the runtime waits, and calls DEL as well.
const undoTimeout = 5 * time.Second

// prepared is an ADD that was validated as far as possible without the daemon.
type prepared struct {
	call
	wishes  PodSettings
	found   previous
	request *nodev1.AddRequest
}

// add asks the daemon to realize the attachment's parts and returns once they are in place, so that the pod's first
// packet reaches its destination.
func (p plugin) add(arguments *skel.CmdArgs) error {
	ready, err := p.prepare(arguments)
	if err != nil {
		return err
	}
	if err := checkNetns(arguments); err != nil {
		return err
	}
	daemon, away := connect(ready.settings, patient)
	if away != nil {
		return away
	}
	defer daemon.close()
	reply, err := daemon.addParts(ready.request)
	if err != nil {
		if _, ok := problemOf(err); !ok {
			// The outcome is unknown. The daemon itself undoes the requests that it refuses.
			_ = p.undo(daemon, ready.call, min(undoTimeout, ready.settings.Timeout))
		}
		return callFailure(err, ready.settings)
	}
	done, err := configurePod(arguments.Netns, arguments.IfName, &ready.found, ready.wishes, reply)
	defer done.close()
	if err == nil {
		err = ready.printResult(os.Stdout)
		if err != nil {
			done.undoAll()
		}
	}
	if err != nil {
		_ = p.undo(daemon, ready.call, min(undoTimeout, ready.settings.Timeout))
	}
	return err
}

func (p plugin) prepare(arguments *skel.CmdArgs) (*prepared, error) {
	call, err := readCall(arguments)
	if err != nil {
		return nil, err
	}
	wishes, err := call.fields.podSettings()
	if err != nil {
		return nil, err
	}
	found, err := readPrevious(call.fields["prevResult"], call.settings.Version, call.key.Interface)
	if err != nil {
		return nil, err
	}
	for _, destination := range wishes.Routes {
		if _, ok := found.gatewayFor(destination); !ok {
			return nil, badField("routes", destination, "a destination with a gateway of its family in prevResult")
		}
	}
	pod, err := readPod(arguments.Args)
	if err != nil {
		return nil, err
	}
	return &prepared{call, wishes, found, &nodev1.AddRequest{
		Key: wireKey(call.key), Parts: p.wire(),
		Pod:           &nodev1.Pod{Namespace: pod.Namespace, Name: pod.Name, Uid: pod.UID},
		Netns:         arguments.Netns,
		HostInterface: found.hostInterface,
		Mac:           found.mac.String(),
		Addresses:     texts(found.addresses),
		Gateways:      texts(found.gateways),
		DeviceId:      wishes.DeviceID, MaxRateBitsPerS: wishes.MaxRate,
	}}, nil
}

// checkNetns runs before anything is done: the library checks the namespace only after ADD has succeeded.
func checkNetns(arguments *skel.CmdArgs) error {
	if !attachment.IsPath(arguments.Netns) {
		return failure(types.ErrInvalidEnvironmentVariables, "", "CNI_NETNS must be an absolute path, got %.80q", arguments.Netns)
	}
	if override := arguments.NetnsOverride; strings.EqualFold(override, "true") || override == "1" {
		return nil
	}
	ours, err := ns.CheckNetNS(arguments.Netns)
	if err != nil {
		return err
	}
	if ours {
		return failure(types.ErrInvalidNetNS, "pass the pod's network namespace; cnitool takes it as its last argument",
			"CNI_NETNS must be a pod's network namespace, got the host's: %s", arguments.Netns)
	}
	return nil
}

func (d *daemon) addParts(request *nodev1.AddRequest) (*nodev1.AddReply, error) {
	ctx, cancel := d.timeout()
	defer cancel()
	return d.Add(ctx, request)
}

// printResult is the last step. It prints prevResult with our additions.
func (p *prepared) printResult(output io.Writer) error {
	result := p.found.result
	if p.wishes.MTU != 0 || len(p.wishes.Routes) != 0 {
		result = p.found.current
	}
	result, err := result.GetAsVersion(p.settings.Version)
	if err == nil {
		err = result.PrintTo(output)
	}
	if err != nil {
		return failure(types.ErrIOFailure, "", "write result: %v", err)
	}
	return nil
}

func texts(addresses []netip.Addr) []string {
	written := make([]string, 0, len(addresses))
	for _, address := range addresses {
		written = append(written, address.String())
	}
	return written
}
