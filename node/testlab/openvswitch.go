package testlab

import (
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// The daemons of Open vSwitch.
const (
	Database = "ovsdb-server"
	Switch   = "ovs-vswitchd"
)

const ovsSchema = "/usr/share/openvswitch/vswitch.ovsschema"

// OpenVSwitch is a pair of Open vSwitch's daemons in a namespace, with the userspace datapath.
type OpenVSwitch struct {
	Namespace *Namespace
	// Folder of the sockets: db.sock, BRIDGE.mgmt, and ovs-vswitchd's pid file and control socket.
	Folder    string
	processes map[string]*exec.Cmd
	kept      int // interfaces that the kernel is kept out of
}

// StartOpenVSwitch starts both daemons. Skips the test where Open vSwitch is not installed, unless
// RAILWRIGHT_TEST_NEEDS_OVS is set: then that is a failure.
func StartOpenVSwitch(t testing.TB, namespace *Namespace) *OpenVSwitch {
	t.Helper()
	if _, err := os.Stat(ovsSchema); err != nil {
		if os.Getenv("RAILWRIGHT_TEST_NEEDS_OVS") != "" {
			t.Fatal(err)
		}
		t.Skip("Open vSwitch is not installed: apt-get install openvswitch-switch ethtool")
	}
	// Not t.TempDir: its path can be longer than that of a unix socket may be.
	folder, err := os.MkdirTemp("", "rwt-ovs-")
	if err != nil {
		t.Fatal(err)
	}
	open := &OpenVSwitch{Namespace: namespace, Folder: folder, processes: map[string]*exec.Cmd{}}
	t.Cleanup(func() {
		for daemon := range open.processes {
			open.end(daemon)
		}
		_ = os.RemoveAll(folder)
	})
	Run(t, "ovsdb-tool", "create", open.path("conf.db"), ovsSchema)
	open.Start(t, Database)
	open.Vsctl(t, "--no-wait", "init")
	// A single thread of each kind, since tests share two cores.
	open.Vsctl(t, "--no-wait", "set", "Open_vSwitch", ".", "other_config:n-handler-threads=1",
		"other_config:n-revalidator-threads=1")
	open.Start(t, Switch)
	return open
}

func (o *OpenVSwitch) path(name string) string { return filepath.Join(o.Folder, name) }

// DatabaseSocket is where ovsdb-server listens.
func (o *OpenVSwitch) DatabaseSocket() string { return o.path("db.sock") }

// Start a daemon, and wait until it answers.
func (o *OpenVSwitch) Start(t testing.TB, daemon string) {
	t.Helper()
	arguments := []string{daemon, "unix:" + o.DatabaseSocket(), "--disable-system", "--disable-system-route"}
	if daemon == Database {
		arguments = []string{daemon, o.path("conf.db"), "--remote=punix:" + o.DatabaseSocket()}
	}
	arguments = append(arguments, "--pidfile="+o.path(daemon+".pid"), "--no-chdir", "-vconsole:off",
		"--log-file="+o.path(daemon+".log"))
	command := o.Namespace.Command(arguments...)
	command.Env = os.Environ()
	for _, variable := range []string{"RUNDIR", "DBDIR", "SYSCONFDIR", "LOGDIR"} {
		command.Env = append(command.Env, "OVS_"+variable+"="+o.Folder)
	}
	if err := Start(command); err != nil {
		t.Fatal(err)
	}
	o.processes[daemon] = command
	control := o.path(fmt.Sprintf("%s.%d.ctl", daemon, command.Process.Pid))
	for until := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		connection, err := net.Dial("unix", control)
		if err == nil {
			_ = connection.Close()
			if pid, _ := os.ReadFile(o.path(daemon + ".pid")); len(pid) > 0 {
				return
			}
		}
		if time.Now().After(until) {
			log, _ := os.ReadFile(o.path(daemon + ".log"))
			t.Fatalf("%s does not answer 20 s after its start: %v\n%s", daemon, err, log)
		}
	}
}

// Kill a daemon as a crash would, with no chance to say goodbye.
func (o *OpenVSwitch) Kill(t testing.TB, daemon string) {
	t.Helper()
	if o.processes[daemon] == nil {
		t.Fatalf("%s does not run", daemon)
	}
	o.end(daemon)
}

// Freeze a daemon where it is: its sockets stay open and nobody answers.
func (o *OpenVSwitch) Freeze(t testing.TB, daemon string) { o.signal(t, daemon, syscall.SIGSTOP) }

// Thaw is Freeze's reverse.
func (o *OpenVSwitch) Thaw(t testing.TB, daemon string) { o.signal(t, daemon, syscall.SIGCONT) }

func (o *OpenVSwitch) signal(t testing.TB, daemon string, signal syscall.Signal) {
	t.Helper()
	if err := o.processes[daemon].Process.Signal(signal); err != nil {
		t.Fatal(err)
	}
}

func (o *OpenVSwitch) end(daemon string) {
	command := o.processes[daemon]
	delete(o.processes, daemon)
	_ = command.Process.Kill()
	_ = command.Wait()
}

// Vsctl runs ovs-vsctl.
func (o *OpenVSwitch) Vsctl(t testing.TB, arguments ...string) string {
	t.Helper()
	return Run(t, append([]string{"ovs-vsctl", "--db=unix:" + o.DatabaseSocket(), "--timeout=20"}, arguments...)...)
}

// Ofctl runs a command of ovs-ofctl on a bridge.
func (o *OpenVSwitch) Ofctl(t testing.TB, bridge, command string, arguments ...string) string {
	t.Helper()
	return Run(t, append(o.ofctl(bridge, command), arguments...)...)
}

// Answers says whether ovs-vswitchd takes flows for the bridge.
func (o *OpenVSwitch) Answers(bridge string) bool {
	arguments := o.ofctl(bridge, "show")
	return exec.Command(arguments[0], arguments[1:]...).Run() == nil
}

func (o *OpenVSwitch) ofctl(bridge, command string) []string {
	return []string{"ovs-ofctl", "-O", "OpenFlow14", command, "unix:" + o.path(bridge+".mgmt")}
}

var countedFlow = regexp.MustCompile(`cookie=(0x[0-9a-f]+),.* n_packets=(\d+),`)

// Counted packets by the cookie of the flows that ovs-ofctl dumped.
func Counted(t testing.TB, dumped string) map[uint64]uint64 {
	t.Helper()
	found := map[uint64]uint64{}
	for _, flow := range countedFlow.FindAllStringSubmatch(dumped, -1) {
		cookie, err := strconv.ParseUint(flow[1], 0, 64)
		packets, wrong := strconv.ParseUint(flow[2], 10, 64)
		if err = errors.Join(err, wrong); err != nil {
			t.Fatal(err)
		}
		found[cookie] += packets
	}
	return found
}

// Appctl asks ovs-vswitchd itself.
func (o *OpenVSwitch) Appctl(t testing.TB, arguments ...string) string {
	t.Helper()
	pid, err := os.ReadFile(o.path(Switch + ".pid"))
	if err != nil {
		t.Fatal(err)
	}
	control := o.path(fmt.Sprintf("%s.%s.ctl", Switch, strings.TrimSpace(string(pid))))
	return Run(t, append([]string{"ovs-appctl", "-t", control}, arguments...)...)
}

// AddBridge makes a rail's bridge: secure, with the MAC address that pods know as their gateway's, and up.
func (o *OpenVSwitch) AddBridge(t testing.TB, bridge, mac string) {
	t.Helper()
	o.Vsctl(t, "add-br", bridge, "--", "set", "bridge", bridge, "datapath_type=netdev", "fail_mode=secure",
		fmt.Sprintf("other-config:hwaddr=%q", mac))
	o.Namespace.IP(t, "link", "set", bridge, "up")
}

// AddPort puts an interface on a bridge, with external_ids as name=value. With the userspace datapath the host's own
// kernel sees all that comes in by the interface too: it would answer ARP for the bridge with the wrong MAC address,
// and route around the flows. It is kept out; and nothing leaves a checksum to hardware, which the datapath would not
// fill in.
func (o *OpenVSwitch) AddPort(t testing.TB, bridge, face string, externalIDs ...string) {
	t.Helper()
	arguments := []string{"add-port", bridge, face}
	if len(externalIDs) > 0 {
		arguments = append(arguments, "--", "set", "port", face)
		for _, pair := range externalIDs {
			arguments = append(arguments, "external_ids:"+pair)
		}
	}
	o.KeepKernelOut(t, face)
	o.Vsctl(t, arguments...)
	o.Namespace.IP(t, "link", "set", face, "up")
	o.Namespace.Run(t, "ethtool", "-K", face, "tx", "off")
}

// KeepKernelOut of an interface that the userspace datapath uses: OVS reads its packets before this drops them.
func (o *OpenVSwitch) KeepKernelOut(t testing.TB, face string) {
	t.Helper()
	o.Namespace.Run(t, "sysctl", "-qw", "net/ipv6/conf/"+face+"/disable_ipv6=1")
	command := o.Namespace.Command("nft", "-f", "-")
	o.kept++
	command.Stdin = strings.NewReader(fmt.Sprintf("add table netdev lab\nadd chain netdev lab port%d "+
		"{ type filter hook ingress device %q priority -500; policy drop; }\n", o.kept, face))
	output(t, command)
}

// AddPod makes a namespace with an interface eth0 whose other end is a port of the bridge, as ovs-cni makes it.
func (o *OpenVSwitch) AddPod(t testing.TB, bridge, face, mac string) *Namespace {
	t.Helper()
	pod := NewNamespace(t, "pod")
	pod.TakeAddressesAtOnce(t)
	Cable(t, pod, "eth0", o.Namespace, face)
	pod.IP(t, "link", "set", "eth0", "address", mac)
	o.AddPort(t, bridge, face, "owner=ovs-cni.network.kubevirt.io", "contNetns="+pod.Path())
	return pod
}
