package chain

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"railwright/node/internal/announce/frrconfig"
	"railwright/node/testlab"
)

const railTable = 7701

// builtDaemon is railwrightd, made once.
var builtDaemon = sync.OnceValues(func() (string, error) {
	folders, err := built()
	if err != nil {
		return "", err
	}
	folder := filepath.Join(folders[1], "daemon")
	told, err := exec.Command("go", "build", "-o", folder+"/", "../../cmd/railwrightd").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("cmd/railwrightd: %w\n%s", err, told)
	}
	return filepath.Join(folder, "railwrightd"), nil
})

// realLab has railwrightd itself, FRR, and the rail's leaf.
type realLab struct {
	*lab
	leaf    *testlab.Namespace
	frr     *testlab.FRR
	program string
	log     *os.File
	process *exec.Cmd
}

func newRealLab(t *testing.T, pods int, version testlab.FRRVersion, backend frrconfig.Backend) *realLab {
	t.Helper()
	program, err := builtDaemon()
	if err != nil {
		t.Fatal(err)
	}
	made := &realLab{lab: newLabWithoutDaemon(t, pods), leaf: testlab.NewNamespace(t, "leaf"), program: program}
	made.leaf.TakeAddressesAtOnce(t)
	testlab.Cable(t, made.leaf, "swp1", made.host, "p0")
	made.openvswitch.AddPort(t, bridge, "p0")
	made.host.IP(t, "address", "add", "192.0.2.1/31", "dev", bridge)
	made.host.IP(t, "address", "add", "2001:db8:9::1/127", "dev", bridge, "nodad")
	made.leaf.IP(t, "address", "add", "192.0.2.0/31", "dev", "swp1")
	made.leaf.IP(t, "address", "add", "2001:db8:9::/127", "dev", "swp1", "nodad")
	prefixes := []netip.Prefix{netip.MustParsePrefix("10.1.0.0/16"), netip.MustParsePrefix("fd00:1::/48")}
	testlab.StartFRR(t, made.leaf, version, frrconfig.Leaf{
		ASN: 65000, RouterID: netip.MustParseAddr("10.255.0.1"), Rail: "rail1", Prefixes: prefixes, MaxPrefixes: 256,
		Ports: []string{"192.0.2.1"},
	}.Text())
	made.frr = testlab.StartFRR(t, made.host, version, frrconfig.Node{
		Backend: backend, ASN: 65001, RouterID: netip.MustParseAddr("10.255.1.1"),
		Rails: []frrconfig.Rail{{
			Name: "rail1", Interface: bridge, Peer: netip.MustParseAddr("192.0.2.0"), Table: railTable, Prefixes: prefixes,
		}},
	}.Text())
	made.configure(t, backend)
	made.start(t)
	return made
}

func (lab *realLab) file(name string) string { return filepath.Join(lab.daemon.Folder, name) }

func (lab *realLab) configure(t *testing.T, backend frrconfig.Backend) {
	t.Helper()
	text := fmt.Sprintf(`
node: node-1
state_folder: %s
socket: %s
metrics: 127.0.0.1:9477
netns_folders: [/run/netns]
rails:
- {name: rail1, bridge: %s, uplink: p0, leaf: 192.0.2.0, table: %d, prefixes: [10.1.0.0/16, "fd00:1::/48"]}
openvswitch: {database: %s, management: %s}
frr: {backend: %s, bgp_socket: %s, asn: 65001}
tenants: {kind: local}
`, lab.daemon.Folder, lab.daemon.Socket(), bridge, railTable, lab.openvswitch.DatabaseSocket(), lab.openvswitch.Folder,
		backend, lab.frr.Socket("bgpd"))
	err := os.WriteFile(lab.file("railwrightd.yaml"), []byte(text), 0o600)
	if err == nil {
		lab.log, err = os.Create(lab.file("railwrightd.log"))
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		lab.kill()
		_ = lab.log.Close()
		if told, err := os.ReadFile(lab.log.Name()); err == nil && t.Failed() {
			lines := strings.Split(string(told), "\n")
			t.Logf("railwrightd's last lines:\n%s", strings.Join(lines[max(0, len(lines)-40):], "\n"))
		}
	})
}

// start railwrightd, and wait until its own status says that all is well.
func (lab *realLab) start(t *testing.T) {
	t.Helper()
	lab.process = lab.host.Command(lab.program, "--config", lab.file("railwrightd.yaml"))
	lab.process.Stdout, lab.process.Stderr = lab.log, lab.log
	if err := testlab.Start(lab.process); err != nil {
		t.Fatal(err)
	}
	testlab.Eventually(t, 30*time.Second, "railwrightd is ready", func() bool {
		return exec.Command(lab.program, "status", "--socket", lab.daemon.Socket()).Run() == nil
	})
}

func (lab *realLab) kill() {
	if lab.process != nil && lab.process.ProcessState == nil {
		_ = lab.process.Process.Signal(syscall.SIGKILL)
		_ = lab.process.Wait()
	}
}

// routed says how many of the addresses the leaf has a route to, in its kernel.
func (lab *realLab) routed(addresses ...string) int {
	count := 0
	for _, address := range addresses {
		family := "-4"
		if strings.Contains(address, ":") {
			family = "-6"
		}
		if told, _ := lab.leaf.Try("ip", family, "route", "show", address); strings.Contains(told, "via") {
			count++
		}
	}
	return count
}

// flows of the bridge that name an address.
func (lab *realLab) flows(t *testing.T, address string) int {
	t.Helper()
	return strings.Count(lab.openvswitch.Ofctl(t, bridge, "dump-flows"), address+" ") +
		strings.Count(lab.openvswitch.Ofctl(t, bridge, "dump-flows"), address+",")
}

func reaches(pod *testlab.Namespace, address string) error {
	told, err := pod.Try("ping", "-c", "3", "-i", "0.05", "-W", "1", address)
	if err != nil {
		return errors.Join(err, errors.New(told))
	}
	return nil
}
