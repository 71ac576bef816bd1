//go:build vmguest

// Package guest contains the tests that ../vm_test.go runs in the virtual machine of ../build. The driver in ../fsw
// creates NICs with VFs from QEMU's devices. Open vSwitch uses the kernel datapath with hardware offload.
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

// rail is a NIC whose uplink is connected to the leaf.
type rail struct {
	number int
	// pci is the address of the PF, vfs those of its VFs.
	pci string
	vfs []string
}

func (r *rail) name() string   { return fmt.Sprintf("rail%d", r.number) }
func (r *rail) uplink() string { return fmt.Sprintf("pf%d", r.number) }
func (r *rail) bridge() string { return fmt.Sprintf("br-rail%d", r.number) }
func (r *rail) bridgeMAC() string {
	return fmt.Sprintf("02:00:00:00:00:%02x", r.number+1)
}
func (r *rail) port() string              { return fmt.Sprintf("swp%d", r.number) }
func (r *rail) table() int                { return 7700 + r.number }
func (r *rail) hostAddress() string       { return fmt.Sprintf("192.0.2.%d", 2*r.number+1) }
func (r *rail) leafAddress() string       { return fmt.Sprintf("192.0.2.%d", 2*r.number) }
func (r *rail) hostAddress6() string      { return fmt.Sprintf("2001:db8:%d::1", r.number) }
func (r *rail) leafAddress6() string      { return fmt.Sprintf("2001:db8:%d::", r.number) }
func (r *rail) prefix() string            { return fmt.Sprintf("10.%d.0.0/16", r.number+1) }
func (r *rail) prefix6() string           { return fmt.Sprintf("fd00:%d::/48", r.number+1) }
func (r *rail) gateway6() string          { return fmt.Sprintf("fd00:%d::1", r.number+1) }
func (r *rail) vf(index int) string       { return fmt.Sprintf("pf%dv%d", r.number, index) }
func (r *rail) representor(vf int) string { return fmt.Sprintf("pf%dr%d", r.number, vf) }
func (r *rail) sysfs(of string) string    { return filepath.Join("/sys/bus/pci/devices", r.pci, of) }

// startNICs loads the driver and configures two PFs in switchdev mode, each with VFs and representors, as on a node
// with SR-IOV. It moves the other ends of the uplinks to the leaf.
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

func (r *rail) start(t *testing.T) {
	t.Helper()
	testlab.Run(t, "ip", "link", "set", only(t, r.sysfs("net/*")), "name", r.uplink(), "mtu", railMTU, "up")
	write(t, r.sysfs("sriov_numvfs"), fmt.Sprint(vfsPerRail))
	testlab.Run(t, "devlink", "dev", "eswitch", "set", "pci/"+r.pci, "mode", "switchdev")
	for index := range vfsPerRail {
		target, err := os.Readlink(r.sysfs(fmt.Sprintf("virtfn%d", index)))
		if err != nil {
			t.Fatal(err)
		}
		r.vfs = append(r.vfs, filepath.Base(target))
		testlab.Run(t, "ip", "link", "set", only(t, r.sysfs(fmt.Sprintf("virtfn%d/net/*", index))), "name", r.vf(index))
	}
	faces, err := filepath.Glob(r.sysfs("net/*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, face := range faces {
		for index := range vfsPerRail {
			name, _ := os.ReadFile(face + "/phys_port_name")
			if strings.TrimSpace(string(name)) == fmt.Sprintf("pf0vf%d", index) {
				testlab.Run(t, "ip", "link", "set", filepath.Base(face), "name", r.representor(index))
			}
		}
	}
}

// only returns the single path that matches the pattern.
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
