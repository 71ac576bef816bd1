package main

import (
	"context"
	"fmt"
	"io"
	"net/netip"
	"strconv"

	"railwright/node/internal/announce/frrconfig"
	"railwright/node/internal/config"
)

// frrConfig prints FRR's configuration for the rails that railwrightd's own one names: the operator gives it to FRR.
func frrConfig(_ context.Context, arguments []string, out io.Writer) (int, error) {
	opts, _, err := parse("frr-config", arguments, 0, "config", "asn", "router-id", "bfd")
	if err != nil {
		return 0, err
	}
	read, err := readConfig(opts)
	if err != nil {
		return 0, err
	}
	node, err := frrOf(read, opts)
	if err != nil {
		return 0, misuse{err}
	}
	_, err = io.WriteString(out, node.Text())
	return exitOK, err
}

// frrOf a node: what its configuration says, and what that leaves to be given.
func frrOf(read config.Config, opts options) (frrconfig.Node, error) {
	asn, err := asnOf(read.FRR, opts.asn)
	if err != nil {
		return frrconfig.Node{}, err
	}
	routerID, err := netip.ParseAddr(opts.routerID)
	if err != nil || !routerID.Is4() || routerID.IsUnspecified() || routerID.IsMulticast() || routerID.IsLoopback() {
		return frrconfig.Node{}, fmt.Errorf("--router-id %.40q: give an IPv4 address that no other BGP speaker of the fabric "+
			"has as its router id, as --router-id 10.255.1.1", opts.routerID)
	}
	node := frrconfig.Node{Backend: frrconfig.KernelTable, ASN: asn, RouterID: routerID, BFD: opts.bfd}
	if read.FRR.Backend == config.Vty {
		node.Backend = frrconfig.Vty
	}
	for _, rail := range read.Rails {
		node.Rails = append(node.Rails, frrconfig.Rail{
			Name: rail.Name, Interface: rail.Bridge, Peer: rail.Leaf, Table: rail.Table, Prefixes: rail.Prefixes,
		})
	}
	return node, nil
}

// asnOf the node, by its configuration or by the option: many nodes may share one file.
func asnOf(frr config.FRR, given string) (uint32, error) {
	if given == "" {
		if frr.ASN == 0 {
			return 0, fmt.Errorf("the AS number is not known: give --asn N, or frr.asn in the configuration")
		}
		return frr.ASN, nil
	}
	asn, err := strconv.ParseUint(given, 10, 32)
	if err != nil || asn == 0 {
		return 0, fmt.Errorf("--asn %.20q: give a number from 1 to 4294967295", given)
	}
	if frr.ASN != 0 && uint32(asn) != frr.ASN {
		return 0, fmt.Errorf("--asn %d is not the configuration's frr.asn %d: railwrightd would not find its routes; give one of "+
			"them alone", asn, frr.ASN)
	}
	return uint32(asn), nil
}
