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

// Owners of ports that may be removed, in the Port's external_ids:owner.
var podOwners = []string{"ovs-cni.network.kubevirt.io", "railwright"}

// portWait bounds how long a port may come later than the one who asks for it.
const portWait = 2 * time.Second

// contents of the database, as far as we read it.
type contents struct {
	open       openVSwitchRow
	bridges    map[string]bridgeRow // by name
	ports      map[string]portRow   // by UUID
	interfaces map[string]interfaceRow
}

func (d *database) contents(ctx context.Context) (contents, <-chan struct{}, error) {
	client, changed, err := d.now()
	if err != nil {
		return contents{}, changed, err
	}
	read, err := readContents(ctx, client)
	if err != nil {
		return contents{}, changed, fmt.Errorf("the database of Open vSwitch cannot be read: %w", err)
	}
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

// portOf finds the bridge and the port that an interface is in.
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

// numbers of the bridge's ports by interface name, of those that have one; ovs-vswitchd gives -1 to one that it cannot
// open.
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

// BridgeOf finds the rail's bridge that has the interface as a port, once the port has its OpenFlow number.
func (c *Client) BridgeOf(ctx context.Context, hostInterface string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, portWait)
	defer cancel()
	if err := wait(ctx, c.database.tried); err != nil {
		return "", fmt.Errorf("the database of Open vSwitch does not answer: %w", err)
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

// bridgeOf says in wanting what may still come.
func (c *Client) bridgeOf(read contents, hostInterface string) (name string, wanting, err error) {
	bridge, _, face, ok := read.portOf(hostInterface)
	if !ok {
		return "", fmt.Errorf("%.20q is a port of no bridge; an earlier plugin of the chain must add it", hostInterface), nil
	}
	if _, ours := c.bridges[bridge.Name]; !ours {
		return "", nil, fmt.Errorf("%.20q is a port of %.20q, which is no rail's bridge; the rails' are %s", hostInterface,
			bridge.Name, strings.Join(slices.Sorted(maps.Keys(c.bridges)), ", "))
	}
	switch {
	case face.Error != nil && *face.Error != "":
		return "", nil, fmt.Errorf("Open vSwitch cannot use %.20q: %.200q", hostInterface, *face.Error)
	case face.OFPort == nil || *face.OFPort <= 0:
		return "", fmt.Errorf("%.20q of %s has no OpenFlow number yet; is ovs-vswitchd running?", hostInterface,
			bridge.Name), nil
	}
	return bridge.Name, nil, nil
}

// PodPorts are the ports of the rails' bridges that were made for pods.
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
				if row, ok := read.interfaces[face]; ok && row.Name != rail.Uplink && row.Name != name {
					found = append(found, PodPort{row.Name, port.ExternalIDs["contNetns"]})
				}
			}
		}
	}
	return found, nil
}

// RemovePort takes a pod's port from a rail's bridge. What is gone already, or is another namespace's by now, is fine.
func (c *Client) RemovePort(ctx context.Context, hostInterface, netns string) error {
	database, _, err := c.database.now()
	if err != nil {
		return err
	}
	read, err := readContents(ctx, database)
	if err != nil {
		return fmt.Errorf("the database of Open vSwitch cannot be read: %w", err)
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
	if hostInterface == rail.Uplink || hostInterface == bridge.Name || !slices.Contains(podOwners, owner) {
		return fmt.Errorf("the port %.20q of %s was not made for a pod (external_ids:owner is %.40q); if it is to go: "+
			"ovs-vsctl del-port", hostInterface, bridge.Name, owner)
	}
	if of := port.ExternalIDs["contNetns"]; of != "" && of != netns {
		c.settings.Log.Info("the port belongs to another namespace by now", "port", hostInterface, "netns", of)
		return nil
	}
	return removePort(ctx, database, bridge, port)
}

// removePort by the row's UUID: a port of the same name that was made meanwhile has another.
func removePort(ctx context.Context, database ovsdbclient.Client, bridge bridgeRow, port portRow) error {
	operations, err := database.Where(&bridge).Mutate(&bridge, model.Mutation{
		Field: &bridge.Ports, Mutator: ovsdb.MutateOperationDelete, Value: []string{port.UUID},
	})
	if err != nil {
		return fmt.Errorf("cannot remove the port %.20q: %w", port.Name, err)
	}
	results, err := database.Transact(ctx, operations...)
	if err == nil {
		_, err = ovsdb.CheckOperationResults(results, operations)
	}
	if err != nil {
		return fmt.Errorf("cannot remove the port %.20q of %s: %w", port.Name, bridge.Name, err)
	}
	return nil
}

// wait for one of both; an error when it is ctx.
func wait(ctx context.Context, happened <-chan struct{}) error {
	select {
	case <-happened:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
