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

// The Open vSwitch daemons.
const (
	Database = "ovsdb-server"
	Switch   = "ovs-vswitchd"
)

const ovsSchema = "/usr/share/openvswitch/vswitch.ovsschema"

// OpenVSwitch is ovsdb-server and ovs-vswitchd in a namespace, with the userspace datapath.
type OpenVSwitch struct {
	Namespace *Namespace
	// Folder holds the sockets db.sock and BRIDGE.mgmt, the daemons' pid files, control sockets and logs, and the
	// database.
	Folder    string
	processes map[string]*exec.Cmd
	kept      int // number of interfaces passed to KeepKernelOut
}

// StartOpenVSwitch starts both daemons. If Open vSwitch is not installed, it skips the test, or fails it if
// RAILWRIGHT_TEST_NEEDS_OVS is set.
func StartOpenVSwitch(t testing.TB, namespace *Namespace) *OpenVSwitch {
	t.Helper()
	if _, err := os.Stat(ovsSchema); err != nil {
		if os.Getenv("RAILWRIGHT_TEST_NEEDS_OVS") != "" {
			t.Fatal(err)
		}
		t.Skip("Open vSwitch is not installed: apt-get install openvswitch-switch ethtool")
	}
	// t.TempDir can return a path that is too long for a unix socket.
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
	// A single thread of each kind is enough, because all tests share two cores.
	open.Vsctl(t, "--no-wait", "set", "Open_vSwitch", ".", "other_config:n-handler-threads=1",
		"other_config:n-revalidator-threads=1")
	open.Start(t, Switch)
	return open
}

func (o *OpenVSwitch) path(name string) string { return filepath.Join(o.Folder, name) }

// DatabaseSocket returns the path of the socket that ovsdb-server listens on.
func (o *OpenVSwitch) DatabaseSocket() string { return o.path("db.sock") }

// Start starts a daemon and waits until it answers.
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
			t.Fatalf("%s must answer within 20 s of its start: %v\n%s", daemon, err, log)
		}
	}
}

// Kill kills a daemon with SIGKILL and waits until it has exited.
func (o *OpenVSwitch) Kill(t testing.TB, daemon string) {
	t.Helper()
	if o.processes[daemon] == nil {
		t.Fatalf("%s does not run", daemon)
	}
	o.end(daemon)
}

// Freeze stops a daemon with SIGSTOP: its sockets stay open, but nothing answers.
func (o *OpenVSwitch) Freeze(t testing.TB, daemon string) { o.signal(t, daemon, syscall.SIGSTOP) }

// Thaw resumes a frozen daemon.
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

// Vsctl runs ovs-vsctl and returns its output.
func (o *OpenVSwitch) Vsctl(t testing.TB, arguments ...string) string {
	t.Helper()
	return Run(t, append([]string{"ovs-vsctl", "--db=unix:" + o.DatabaseSocket(), "--timeout=20"}, arguments...)...)
}

// Ofctl runs an ovs-ofctl command on a bridge and returns its output.
func (o *OpenVSwitch) Ofctl(t testing.TB, bridge, command string, arguments ...string) string {
	t.Helper()
	return Run(t, append(o.ofctl(bridge, command), arguments...)...)
}

// Answers reports whether ovs-vswitchd answers OpenFlow requests for the bridge.
func (o *OpenVSwitch) Answers(bridge string) bool {
	arguments := o.ofctl(bridge, "show")
	return exec.Command(arguments[0], arguments[1:]...).Run() == nil
}

func (o *OpenVSwitch) ofctl(bridge, command string) []string {
	return []string{"ovs-ofctl", "-O", "OpenFlow14", command, "unix:" + o.path(bridge+".mgmt")}
}

var countedFlow = regexp.MustCompile(`cookie=(0x[0-9a-f]+),.* n_packets=(\d+),`)

// PacketsByCookie sums the packet counters of dumped flows by cookie. dumped is the output of `ovs-ofctl dump-flows`.
func PacketsByCookie(t testing.TB, dumped string) map[uint64]uint64 {
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

// Appctl runs an ovs-appctl command on ovs-vswitchd and returns its output.
func (o *OpenVSwitch) Appctl(t testing.TB, arguments ...string) string {
	t.Helper()
	pid, err := os.ReadFile(o.path(Switch + ".pid"))
	if err != nil {
		t.Fatal(err)
	}
	control := o.path(fmt.Sprintf("%s.%s.ctl", Switch, strings.TrimSpace(string(pid))))
	return Run(t, append([]string{"ovs-appctl", "-t", control}, arguments...)...)
}

// AddBridge creates a rail's bridge in fail mode secure, with the MAC address of the pods' gateway, and sets it up.
func (o *OpenVSwitch) AddBridge(t testing.TB, bridge, mac string) {
	t.Helper()
	o.Vsctl(t, "add-br", bridge, "--", "set", "bridge", bridge, "datapath_type=netdev", "fail_mode=secure",
		fmt.Sprintf("other-config:hwaddr=%q", mac))
	o.Namespace.IP(t, "link", "set", bridge, "up")
}

// AddPort adds an interface to a bridge, with external_ids as name=value. With the userspace datapath the host's kernel
// receives the interface's packets too: it would answer ARP for the bridge with the wrong MAC address and route past
// the flows, so KeepKernelOut drops them. Checksum offload is disabled, because the datapath does not compute checksums
// that a sender left to hardware.
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

// KeepKernelOut drops the packets of an interface before the kernel's network stack. The userspace datapath has already
// read them by then.
func (o *OpenVSwitch) KeepKernelOut(t testing.TB, face string) {
	t.Helper()
	o.Namespace.Run(t, "sysctl", "-qw", "net/ipv6/conf/"+face+"/disable_ipv6=1")
	command := o.Namespace.Command("nft", "-f", "-")
	o.kept++
	command.Stdin = strings.NewReader(fmt.Sprintf("add table netdev lab\nadd chain netdev lab port%d "+
		"{ type filter hook ingress device %q priority -500; policy drop; }\n", o.kept, face))
	output(t, command)
}

// AddPod creates a namespace with an interface eth0 whose peer is a port of the bridge, as ovs-cni creates it.
func (o *OpenVSwitch) AddPod(t testing.TB, bridge, face, mac string) *Namespace {
	t.Helper()
	pod := NewNamespace(t, "pod")
	pod.TakeAddressesAtOnce(t)
	Cable(t, pod, "eth0", o.Namespace, face)
	pod.IP(t, "link", "set", "eth0", "address", mac)
	o.AddPort(t, bridge, face, "owner=ovs-cni.network.kubevirt.io", "contNetns="+pod.Path())
	return pod
}
