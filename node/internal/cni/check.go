package cni

import (
	"fmt"
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"

	nodev1 "railwright/node/api/v1"
	"railwright/node/internal/attachment"
)

// check inspects the pod's side itself, and asks the daemon to compare the requested with the actual state.
func (p plugin) check(arguments *skel.CmdArgs) error {
	call, err := readCall(arguments)
	if err != nil {
		return err
	}
	var inside []string
	if p.has(attachment.Flows) {
		inside, err = call.podDifferences(arguments)
		if err != nil {
			return err
		}
	}
	daemon, away := connect(call.settings, patient)
	if away != nil {
		return away
	}
	defer daemon.close()
	ctx, cancel := daemon.timeout()
	defer cancel()
	reply, err := daemon.Check(ctx, &nodev1.CheckRequest{Key: wireKey(call.key), Parts: p.wire()})
	if err != nil {
		return callFailure(err, call.settings)
	}
	differences := slices.Concat(inside, reply.GetDifferences())
	if len(differences) == 0 {
		return nil
	}
	hint := "railwrightd repairs this within seconds; if it persists, check its log"
	if len(inside) > 0 {
		hint = "a process in the pod or another plugin changed it; delete the pod"
	}
	return withHint(CodeDifferent, fmt.Sprintf("%s differs from its request: %s", call.key, differences[0]),
		strings.Join(differences[1:], "; "), hint)
}

// collectGarbage forwards the list of the network's valid attachments. The daemon decides whether an empty list is a
// mistake, because it sees which pods are alive.
func (p plugin) collectGarbage(arguments *skel.CmdArgs) error {
	found, err := readFields(arguments.StdinData)
	if err != nil {
		return err
	}
	settings, err := found.settings()
	if err != nil {
		return err
	}
	valid, err := found.validAttachments(settings.Network)
	if err != nil {
		return err
	}
	request := &nodev1.CollectGarbageRequest{Network: settings.Network}
	for _, key := range valid {
		request.Valid = append(request.Valid, wireKey(key))
	}
	daemon, away := connect(settings, patient)
	if away != nil {
		return away
	}
	defer daemon.close()
	ctx, cancel := daemon.timeout()
	defer cancel()
	if _, err := daemon.CollectGarbage(ctx, request); err != nil {
		return callFailure(err, settings)
	}
	return nil
}

// status returns 50 if an ADD of this plugin would fail, and 51 if existing pods are cut off as well.
func (p plugin) status(arguments *skel.CmdArgs) error {
	found, err := readFields(arguments.StdinData)
	if err != nil {
		return err
	}
	settings, err := found.settings()
	if err != nil {
		return err
	}
	daemon, away := connect(settings, once)
	if away != nil {
		return notAvailable(away)
	}
	defer daemon.close()
	ctx, cancel := daemon.timeout()
	defer cancel()
	reply, err := daemon.Status(ctx, &nodev1.StatusRequest{Network: settings.Network})
	if err != nil {
		return notAvailable(callFailure(err, settings))
	}
	return p.judge(reply)
}

func notAvailable(cause *types.Error) error {
	if cause.Code != types.ErrLimitedConnectivity {
		cause.Code = types.ErrPluginNotAvailable
	}
	return cause
}

// judge checks what this plugin's parts need. A reply without rails is a failure.
func (p plugin) judge(reply *nodev1.StatusReply) error {
	code, problems := uint(0), append([]string{}, reply.GetProblems()...)
	if len(problems) > 0 {
		code = types.ErrPluginNotAvailable
	}
	for _, rail := range reply.GetRails() {
		cut := !rail.GetUplinkUp() || p.has(attachment.Routes) && !rail.GetSessionEstablished()
		unable := p.has(attachment.Flows) && !rail.GetSwitchReady()
		switch {
		case cut:
			code = types.ErrLimitedConnectivity
		case unable && code == 0:
			code = types.ErrPluginNotAvailable
		}
		if cut || unable {
			problems = append(problems, railProblem(rail))
		}
	}
	if len(reply.GetRails()) == 0 {
		code, problems = max(code, types.ErrPluginNotAvailable), append(problems, "no rail for this network")
	}
	if code == 0 {
		return nil
	}
	return withHint(code, problems[0], strings.Join(problems[1:], "; "), "run `railwrightd status` on this node")
}

func railProblem(rail *nodev1.RailStatus) string {
	state := map[bool]string{true: "up", false: "down"}
	message := fmt.Sprintf("rail %s: switch %s, uplink %s, BGP session %s",
		rail.GetRail(), state[rail.GetSwitchReady()], state[rail.GetUplinkUp()], state[rail.GetSessionEstablished()])
	if problems := strings.Join(rail.GetProblems(), "; "); problems != "" {
		message += " (" + problems + ")"
	}
	return message
}
