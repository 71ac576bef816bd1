//go:build vmguest

// Package guest is what runs inside the virtual machine of ../build: the tests of ../vm_test.go, on NICs with VFs that
// the driver of ../fsw makes out of QEMU's, with Open vSwitch's kernel datapath and its hardware offload on.
package guest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"railwright/node/testlab"
)

const (
	shared     = "/programs/"
	vfsPerRail = 2
	railMTU    = "4200"
)

// rail is one NIC: its uplink's other end is in the leaf.
type rail struct {
	number int
	// pci address of the PF; of its VFs.
	pci string
	vfs []string
}

func (rail *rail) name() string   { return fmt.Sprintf("rail%d", rail.number) }
func (rail *rail) uplink() string { return fmt.Sprintf("pf%d", rail.number) }
func (rail *rail) bridge() string { return fmt.Sprintf("br-rail%d", rail.number) }
func (rail *rail) bridgeMAC() string {
	return fmt.Sprintf("02:00:00:00:00:%02x", rail.number+1)
}
func (rail *rail) port() string              { return fmt.Sprintf("swp%d", rail.number) }
func (rail *rail) table() int                { return 7700 + rail.number }
func (rail *rail) hostAddress() string       { return fmt.Sprintf("192.0.2.%d", 2*rail.number+1) }
func (rail *rail) leafAddress() string       { return fmt.Sprintf("192.0.2.%d", 2*rail.number) }
func (rail *rail) hostAddress6() string      { return fmt.Sprintf("2001:db8:%d::1", rail.number) }
func (rail *rail) leafAddress6() string      { return fmt.Sprintf("2001:db8:%d::", rail.number) }
func (rail *rail) prefix() string            { return fmt.Sprintf("10.%d.0.0/16", rail.number+1) }
func (rail *rail) prefix6() string           { return fmt.Sprintf("fd00:%d::/48", rail.number+1) }
func (rail *rail) gateway6() string          { return fmt.Sprintf("fd00:%d::1", rail.number+1) }
func (rail *rail) vf(index int) string       { return fmt.Sprintf("pf%dv%d", rail.number, index) }
func (rail *rail) representor(vf int) string { return fmt.Sprintf("pf%dr%d", rail.number, vf) }
func (rail *rail) sysfs(of string) string    { return filepath.Join("/sys/bus/pci/devices", rail.pci, of) }

// startNICs loads the driver and makes what a node with SR-IOV has after its start: two PFs in switchdev mode, each with
// VFs and their representors. The uplinks' other ends go to the leaf.
func startNICs(t *testing.T, leaf *testlab.Namespace) []*rail {
	t.Helper()
	for _, module := range []string{
		"openvswitch", "sch_ingress", "cls_flower", "cls_matchall", "act_mirred", "act_pedit", "act_csum", "act_gact",
		"act_skbedit", "act_police",
	} {
		testlab.Run(t, "modprobe", module)
	}
	testlab.Run(t, "insmod", shared+"fsw.ko")
	var rails []*rail
	for number := range 2 {
		made := &rail{number: number, pci: fmt.Sprintf("0000:%02x:00.0", number+1)}
		made.start(t)
		wire := fmt.Sprintf("wire%d", number+1)
		testlab.Run(t, "ip", "link", "set", wire, "mtu", railMTU, "netns", leaf.Name, "name", made.port())
		leaf.IP(t, "link", "set", made.port(), "up")
		leaf.IP(t, "address", "add", made.leafAddress()+"/31", "dev", made.port())
		leaf.IP(t, "address", "add", made.leafAddress6()+"/127", "dev", made.port(), "nodad")
		rails = append(rails, made)
	}
	return rails
}

func (rail *rail) start(t *testing.T) {
	t.Helper()
	testlab.Run(t, "ip", "link", "set", only(t, rail.sysfs("net/*")), "name", rail.uplink(), "mtu", railMTU, "up")
	write(t, rail.sysfs("sriov_numvfs"), fmt.Sprint(vfsPerRail))
	testlab.Run(t, "devlink", "dev", "eswitch", "set", "pci/"+rail.pci, "mode", "switchdev")
	for index := range vfsPerRail {
		target, err := os.Readlink(rail.sysfs(fmt.Sprintf("virtfn%d", index)))
		if err != nil {
			t.Fatal(err)
		}
		rail.vfs = append(rail.vfs, filepath.Base(target))
		testlab.Run(t, "ip", "link", "set", only(t, rail.sysfs(fmt.Sprintf("virtfn%d/net/*", index))), "name", rail.vf(index))
	}
	faces, err := filepath.Glob(rail.sysfs("net/*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, face := range faces {
		for index := range vfsPerRail {
			name, _ := os.ReadFile(face + "/phys_port_name")
			if strings.TrimSpace(string(name)) == fmt.Sprintf("pf0vf%d", index) {
				testlab.Run(t, "ip", "link", "set", filepath.Base(face), "name", rail.representor(index))
			}
		}
	}
}

// only name that the pattern matches.
func only(t *testing.T, pattern string) string {
	t.Helper()
	found, err := filepath.Glob(pattern)
	if err != nil || len(found) != 1 {
		t.Fatalf("%s: %v %v, wanted one", pattern, found, err)
	}
	return filepath.Base(found[0])
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
