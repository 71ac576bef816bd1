package openvswitch

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	ovsdbclient "github.com/ovn-kubernetes/libovsdb/client"
	"github.com/ovn-kubernetes/libovsdb/model"
	"github.com/ovn-kubernetes/libovsdb/ovsdb"
)

// podOwners are the values of external_ids:owner of ports that may be removed.
var podOwners = []string{"ovs-cni.network.kubevirt.io", "railwright"}

// portWait is how long BridgeOf waits for a port that appears after the request.
const portWait = 2 * time.Second

// contents is the part of the database that we read.
type contents struct {
	open       openVSwitchRow
	bridges    map[string]bridgeRow // by name
	ports      map[string]portRow   // by UUID
	interfaces map[string]interfaceRow
}

// keptContents are the contents until the channel is closed, at the next change.
type keptContents struct {
	contents
	until <-chan struct{}
}

// contents returns the contents, which nobody may change, and a channel that is closed at the next change.
func (d *database) contents(ctx context.Context) (contents, <-chan struct{}, error) {
	client, changed, err := d.now()
	if err != nil {
		return contents{}, changed, err
	}
	d.lock.Lock()
	kept := d.kept
	d.lock.Unlock()
	if kept.until == changed {
		return kept.contents, changed, nil
	}
	read, err := readContents(ctx, client)
	if err != nil {
		return contents{}, changed, fmt.Errorf("read Open vSwitch's database: %w", err)
	}
	d.lock.Lock()
	d.kept = keptContents{read, changed}
	d.lock.Unlock()
	return read, changed, nil
}

func readContents(ctx context.Context, client ovsdbclient.Client) (contents, error) {
	var opens []openVSwitchRow
	var bridges []bridgeRow
	var ports []portRow
	var interfaces []interfaceRow
	err := errors.Join(client.List(ctx, &opens), client.List(ctx, &bridges), client.List(ctx, &ports),
		client.List(ctx, &interfaces))
	read := contents{bridges: map[string]bridgeRow{}, ports: map[string]portRow{}, interfaces: map[string]interfaceRow{}}
	for _, row := range opens {
		read.open = row
	}
	for _, row := range bridges {
		read.bridges[row.Name] = row
	}
	for _, row := range ports {
		read.ports[row.UUID] = row
	}
	for _, row := range interfaces {
		read.interfaces[row.UUID] = row
	}
	return read, err
}

// portOf returns the bridge and the port of an interface.
func (c contents) portOf(hostInterface string) (bridgeRow, portRow, interfaceRow, bool) {
	for _, bridge := range c.bridges {
		for _, port := range bridge.Ports {
			for _, face := range c.ports[port].Interfaces {
				if row, ok := c.interfaces[face]; ok && row.Name == hostInterface {
					return bridge, c.ports[port], row, true
				}
			}
		}
	}
	return bridgeRow{}, portRow{}, interfaceRow{}, false
}

// numbers returns the OpenFlow numbers of the bridge's ports by interface name. It skips ports without one;
// ovs-vswitchd gives -1 to an interface that it cannot open.
func (c contents) numbers(bridge bridgeRow) map[string]uint32 {
	numbers := map[string]uint32{}
	for _, port := range bridge.Ports {
		for _, face := range c.ports[port].Interfaces {
			if row, ok := c.interfaces[face]; ok && row.OFPort != nil && *row.OFPort > 0 && row.Name != bridge.Name {
				numbers[row.Name] = uint32(*row.OFPort)
			}
		}
	}
	return numbers
}

// BridgeOf returns the rail's bridge that has the interface as a port, once the port has its OpenFlow number.
func (c *Client) BridgeOf(ctx context.Context, hostInterface string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, portWait)
	defer cancel()
	if err := wait(ctx, c.database.tried); err != nil {
		return "", fmt.Errorf("Open vSwitch's database does not reply: %w", err)
	}
	for {
		read, changed, err := c.database.contents(ctx)
		if err != nil {
			return "", err
		}
		bridge, wanting, err := c.bridgeOf(read, hostInterface)
		if wanting == nil {
			return bridge, err
		}
		if wait(ctx, changed) != nil {
			return "", wanting
		}
	}
}

// bridgeOf returns in wanting the error for a state that may still change.
func (c *Client) bridgeOf(read contents, hostInterface string) (name string, wanting, err error) {
	bridge, _, face, ok := read.portOf(hostInterface)
	if !ok {
		return "", fmt.Errorf("interface %.20q must be a port of a rail's bridge; add it in an earlier plugin of the chain", hostInterface), nil
	}
	if _, ours := c.bridges[bridge.Name]; !ours {
		return "", nil, fmt.Errorf("interface %.20q must be a port of a rail's bridge (%s), got %.20q", hostInterface,
			strings.Join(slices.Sorted(maps.Keys(c.bridges)), ", "), bridge.Name)
	}
	switch {
	case face.Error != nil && *face.Error != "":
		return "", nil, fmt.Errorf("Open vSwitch cannot use interface %.20q: %.200q", hostInterface, *face.Error)
	case face.OFPort == nil || *face.OFPort <= 0:
		return "", fmt.Errorf("interface %.20q of %s has no OpenFlow number yet; check that ovs-vswitchd runs", hostInterface,
			bridge.Name), nil
	}
	return bridge.Name, nil, nil
}

// PodPorts returns the ports of the rails' bridges that were created for pods.
func (c *Client) PodPorts(ctx context.Context) ([]PodPort, error) {
	read, _, err := c.database.contents(ctx)
	if err != nil {
		return nil, err
	}
	var found []PodPort
	for name, rail := range c.rails {
		for _, uuid := range read.bridges[name].Ports {
			port := read.ports[uuid]
			if !slices.Contains(podOwners, port.ExternalIDs["owner"]) {
				continue
			}
			for _, face := range port.Interfaces {
				if row, ok := read.interfaces[face]; ok && row.Name != rail.Uplink && row.Name != rail.Second && row.Name != name {
					found = append(found, PodPort{row.Name, port.ExternalIDs["contNetns"]})
				}
			}
		}
	}
	return found, nil
}

// RemovePort removes a pod's port from a rail's bridge. It ignores a port that is already gone or now belongs to
// another namespace.
func (c *Client) RemovePort(ctx context.Context, hostInterface, netns string) error {
	database, _, err := c.database.now()
	if err != nil {
		return err
	}
	read, err := readContents(ctx, database)
	if err != nil {
		return fmt.Errorf("read Open vSwitch's database: %w", err)
	}
	bridge, port, _, ok := read.portOf(hostInterface)
	if !ok {
		return nil
	}
	rail, ours := c.rails[bridge.Name]
	if !ours {
		return nil
	}
	owner := port.ExternalIDs["owner"]
	if hostInterface == rail.Uplink || hostInterface == rail.Second || hostInterface == bridge.Name || !slices.Contains(podOwners, owner) {
		return fmt.Errorf("port %.20q of %s was not created for a pod (external_ids:owner is %.40q); to remove it: "+
			"ovs-vsctl del-port", hostInterface, bridge.Name, owner)
	}
	if of := port.ExternalIDs["contNetns"]; of != "" && of != netns {
		c.settings.Log.Info("port now belongs to another namespace", "port", hostInterface, "netns", of)
		return nil
	}
	return removePort(ctx, database, bridge, port)
}

// removePort deletes the port by the row's UUID, so that a newer port with the same name stays.
func removePort(ctx context.Context, database ovsdbclient.Client, bridge bridgeRow, port portRow) error {
	operations, err := database.Where(&bridge).Mutate(&bridge, model.Mutation{
		Field: &bridge.Ports, Mutator: ovsdb.MutateOperationDelete, Value: []string{port.UUID},
	})
	if err != nil {
		return fmt.Errorf("remove port %.20q: %w", port.Name, err)
	}
	results, err := database.Transact(ctx, operations...)
	if err == nil {
		_, err = ovsdb.CheckOperationResults(results, operations)
	}
	if err != nil {
		return fmt.Errorf("remove port %.20q of %s: %w", port.Name, bridge.Name, err)
	}
	return nil
}

// wait waits for happened or for ctx, and returns an error for ctx.
func wait(ctx context.Context, happened <-chan struct{}) error {
	select {
	case <-happened:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
