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

// frrConfig prints FRR's configuration for the configured rails. The operator installs it.
func frrConfig(_ context.Context, arguments []string, out io.Writer) (int, error) {
	opts, _, err := parse("frr-config", arguments, 0, "config", "asn", "router-id", "bfd")
	if err != nil {
		return 0, err
	}
	read, err := readConfig(opts)
	if err != nil {
		return 0, err
	}
	node, err := frrNode(read, opts)
	if err != nil {
		return 0, usageError{err}
	}
	_, err = io.WriteString(out, node.Text())
	return exitOK, err
}

// frrNode returns FRR's configuration of a node from railwrightd's configuration and the options.
func frrNode(read config.Config, opts options) (frrconfig.Node, error) {
	asn, err := asnOf(read.FRR, opts.asn)
	if err != nil {
		return frrconfig.Node{}, err
	}
	routerID, err := netip.ParseAddr(opts.routerID)
	if err != nil || !routerID.Is4() || routerID.IsUnspecified() || routerID.IsMulticast() || routerID.IsLoopback() {
		return frrconfig.Node{}, fmt.Errorf("--router-id must be an IPv4 address that no other BGP speaker of the fabric "+
			"has as its router ID, such as 10.255.1.1, got %.40q", opts.routerID)
	}
	node := frrconfig.Node{Backend: frrconfig.KernelTable, ASN: asn, RouterID: routerID, BFD: opts.bfd}
	if read.FRR.Backend == config.Vty {
		node.Backend = frrconfig.Vty
	}
	for _, rail := range read.Rails {
		node.Rails = append(node.Rails, frrconfig.Rail{
			Name: rail.Name, Interface: rail.Bridge, Peer: rail.Leaf, Second: rail.SecondLeaf, Table: rail.Table, Prefixes: rail.Prefixes,
		})
	}
	return node, nil
}

// asnOf returns the AS number from the configuration or the option: many nodes can share a file.
func asnOf(frr config.FRR, option string) (uint32, error) {
	if option == "" {
		if frr.ASN == 0 {
			return 0, fmt.Errorf("AS number is required; set --asn N, or frr.asn in the configuration")
		}
		return frr.ASN, nil
	}
	asn, err := strconv.ParseUint(option, 10, 32)
	if err != nil || asn == 0 {
		return 0, fmt.Errorf("--asn must be 1 to 4294967295, got %.20q", option)
	}
	if frr.ASN != 0 && uint32(asn) != frr.ASN {
		return 0, fmt.Errorf("--asn must equal frr.asn %d of the configuration, got %d; set only one of "+
			"them", frr.ASN, asn)
	}
	return uint32(asn), nil
}
