// Package cni is the plugins: thin clients of railwrightd, called by the container runtime for each pod's interface.
//
// One binary, answering by the name it was called by:
//
//	railwright-cni                     flows and routes in one call
//	ovs-provider, ovs-provider-cli     flows
//	frr-provider, frr-provider-cli     routes
//
// Its own fields of the configuration, all optional:
//
//	socket                 railwrightd's, "/run/railwright/railwrightd.sock"
//	stateDir               railwrightd's folder, "/var/lib/railwright"; tombstones of DELs lie in it
//	connectTimeoutSeconds  for a daemon that is away, 1
//	timeoutSeconds         for one call, 20
//	maxRate                of the pod, each direction, as "25Gb/s"
//	mtu                    of the pod's interface and its other end; ovs has a field of this name too
//	routes                 into the pod by its gateway, as [{"dst": "10.0.0.0/8"}]
//	deviceID               the VF, as Multus puts it there
//
// CNI errors: 4 CNI_ARGS or names of the call, 5 a tombstone that could not be written, 6 and 7 the configuration or
// prevResult, 8 the network namespace, 11 railwrightd is away or did not finish, 50 and 51 STATUS, 100 CHECK found
// other than what was asked for; others are railwrightd's.
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

// Versions of CNI that the plugins speak. 0.3.1 differs from 0.4.0 only in having no CHECK.
var Versions = version.PluginSupports("0.3.1", "0.4.0", "1.0.0", "1.1.0")

// plugin is one name of the binary.
type plugin struct{ parts []attachment.Part }

var plugins = map[string]plugin{
	"railwright-cni":   {[]attachment.Part{attachment.Flows, attachment.Routes}},
	"ovs-provider":     {[]attachment.Part{attachment.Flows}},
	"ovs-provider-cli": {[]attachment.Part{attachment.Flows}},
	"frr-provider":     {[]attachment.Part{attachment.Routes}},
	"frr-provider-cli": {[]attachment.Part{attachment.Routes}},
}

// Run does what the environment asks for (CNI_COMMAND) as the plugin of this name: the result goes to standard output.
func Run(name string) *types.Error {
	plugin, known := plugins[name]
	if !known {
		names := make([]string, 0, len(plugins))
		for pluginName := range plugins {
			names = append(names, pluginName)
		}
		slices.Sort(names)
		return failure(types.ErrInvalidEnvironmentVariables, "name the file, or a link to it, after one of them",
			"no plugin is called %.40q; this binary is %s", name, strings.Join(names, ", "))
	}
	return skel.PluginMainFuncsWithError(skel.CNIFuncs{
		Add: plugin.add, Del: plugin.delete, Check: plugin.check, GC: plugin.collectGarbage, Status: plugin.status,
	}, Versions, name+" "+release.Version+" of Railwright: a CNI plugin, to be called by a container runtime")
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

// call is one call by a runtime: what each verb but GC and STATUS is about.
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
