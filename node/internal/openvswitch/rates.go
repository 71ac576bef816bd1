package openvswitch

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strconv"

	"railwright/node/internal/plan"
)

// ErrRate is returned for a rate that Open vSwitch would not program as it is.
var ErrRate = errors.New("rate is too high for Open vSwitch")

// highestPoliced is the highest rate in bit/s that Open vSwitch before 3.2 passes to tc: it counts bytes per second in
// 32 bits, and a higher rate wraps around to a lower one.
const highestPoliced = (1<<32 - 1) * 8

// versionWord matches the version in "ovs-vswitchd (Open vSwitch) 3.1.0".
var versionWord = regexp.MustCompile(`(\d+)\.(\d+)`)

// CheckRate returns ErrRate if the bridge's datapath would limit traffic to another rate.
func (c *Client) CheckRate(ctx context.Context, bridge string, rate uint64) error {
	if rate <= highestPoliced {
		return nil
	}
	read, _, err := c.database.contents(ctx)
	if err != nil {
		return err
	}
	if read.open.OtherConfig["hw-offload"] != "true" || read.bridges[bridge].DatapathType == "netdev" {
		return nil
	}
	first := ""
	err = c.appctl(ctx, func(line string) {
		if first == "" {
			first = line
		}
	}, "version")
	if err != nil {
		return fmt.Errorf("read the version of Open vSwitch: %w", err)
	}
	return checkPoliced(first, rate)
}

// checkPoliced is CheckRate for a datapath in tc and the version of ovs-vswitchd.
func checkPoliced(version string, rate uint64) error {
	if parts := versionWord.FindStringSubmatch(version); parts != nil {
		major, _ := strconv.Atoi(parts[1])
		minor, _ := strconv.Atoi(parts[2])
		if major > 3 || major == 3 && minor >= 2 {
			return nil
		}
	}
	return fmt.Errorf("%w: %s with hw-offload limits to at most %d bit/s, its tc policer wraps above, got %d", ErrRate, version,
		uint64(highestPoliced), rate)
}

// checkMeters compares the meters of the flows with the bridge's, after they were made.
func (c *Client) checkMeters(ctx context.Context, bridge string, flows []plan.Flow) (map[uint32]error, error) {
	there, err := c.meters(ctx, bridge)
	wrong := map[uint32]error{}
	for number, want := range metersOf(flows) {
		if err == nil && there[number] != want {
			wrong[number] = fmt.Errorf("%w: meter %d must have %s, got %.60q", ErrRate, number, want, there[number])
		}
	}
	return wrong, err
}
