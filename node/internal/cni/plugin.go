// Package cni implements the plugins: thin clients of railwrightd that the container runtime calls for each interface
// of a pod.
//
// The plugins are a single binary that acts by the name that it is called by:
//
//	railwright-cni                     flows and routes in one call
//	ovs-provider, ovs-provider-cli     flows
//	frr-provider, frr-provider-cli     routes
//
// Fields of the configuration, all optional:
//
//	socket                 railwrightd's socket, "/run/railwright/railwrightd.sock"
//	stateDir               railwrightd's folder, "/var/lib/railwright"; it holds the tombstones of DELs
//	connectTimeoutSeconds  wait for a daemon that is down, 1
//	timeoutSeconds         time for a call, 20
//	maxRate                limit of the pod in each direction, such as "25Gb/s"
//	mtu                    MTU of the pod's interface and its other end; ovs has a field with this name too
//	routes                 routes in the pod through its gateway, such as [{"dst": "10.0.0.0/8"}]
//	deviceID               the VF, as set by Multus
//
// CNI errors: 4 CNI_ARGS or names of the call, 5 a tombstone cannot be written, 6 and 7 the configuration or
// prevResult, 8 the network namespace, 11 railwrightd is down or timed out, 50 and 51 STATUS, 100 CHECK found
// differences; all others come from railwrightd.
package cni

import (
	"slices"
	"strings"

	"github.com/containernetworking/cni/pkg/skel"
	"github.com/containernetworking/cni/pkg/types"
	"github.com/containernetworking/cni/pkg/version"

	nodev1 "railwright/node/api/v1"
	"railwright/node/internal/attachment"
	"railwright/node/internal/release"
)

// Versions lists the supported CNI versions. 0.3.1 differs from 0.4.0 only in lacking CHECK.
var Versions = version.PluginSupports("0.3.1", "0.4.0", "1.0.0", "1.1.0")

// plugin is the behaviour of one of the binary's names.
type plugin struct{ parts []attachment.Part }

var plugins = map[string]plugin{
	"railwright-cni":   {[]attachment.Part{attachment.Flows, attachment.Routes}},
	"ovs-provider":     {[]attachment.Part{attachment.Flows}},
	"ovs-provider-cli": {[]attachment.Part{attachment.Flows}},
	"frr-provider":     {[]attachment.Part{attachment.Routes}},
	"frr-provider-cli": {[]attachment.Part{attachment.Routes}},
}

// Run executes CNI_COMMAND as the named plugin and writes the result to standard output.
func Run(name string) *types.Error {
	plugin, known := plugins[name]
	if !known {
		names := make([]string, 0, len(plugins))
		for pluginName := range plugins {
			names = append(names, pluginName)
		}
		slices.Sort(names)
		return failure(types.ErrInvalidEnvironmentVariables, "rename the file, or link to it, as one of the plugins",
			"plugin name must be one of %s, got %.40q", strings.Join(names, ", "), name)
	}
	return skel.PluginMainFuncsWithError(skel.CNIFuncs{
		Add: plugin.add, Del: plugin.delete, Check: plugin.check, GC: plugin.collectGarbage, Status: plugin.status,
	}, Versions, name+" "+release.Version+" of Railwright: a CNI plugin, called by a container runtime")
}

func (p plugin) has(part attachment.Part) bool { return slices.Contains(p.parts, part) }

func (p plugin) wire() []nodev1.Part {
	wired := make([]nodev1.Part, 0, len(p.parts))
	for _, part := range p.parts {
		wired = append(wired, map[attachment.Part]nodev1.Part{
			attachment.Flows: nodev1.Part_PART_FLOWS, attachment.Routes: nodev1.Part_PART_ROUTES,
		}[part])
	}
	return wired
}

// call is a call by a runtime, as every command but GC and STATUS needs it.
type call struct {
	fields   fields
	settings Settings
	key      attachment.Key
}

func readCall(arguments *skel.CmdArgs) (call, error) {
	found, err := readFields(arguments.StdinData)
	if err != nil {
		return call{}, err
	}
	settings, err := found.settings()
	if err != nil {
		return call{}, err
	}
	key := attachment.Key{Network: settings.Network, ContainerID: arguments.ContainerID, Interface: arguments.IfName}
	if err := key.Check(); err != nil {
		return call{}, failure(types.ErrInvalidEnvironmentVariables, "", "%v", err)
	}
	return call{found, settings, key}, nil
}

func wireKey(key attachment.Key) *nodev1.Key {
	return &nodev1.Key{Network: key.Network, ContainerId: key.ContainerID, Interface: key.Interface}
}
