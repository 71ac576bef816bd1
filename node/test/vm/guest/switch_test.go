//go:build vmguest

package guest

import (
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"railwright/node/testlab"
)

const (
	ovsFolder = "/run/openvswitch"
	database  = ovsFolder + "/db.sock"
)

// startOpenVSwitch starts Open vSwitch with the kernel's datapath and hardware offload, as a node's service does, and
// creates the rails' bridges. The database is in the state folder, because it persists across boots on a real node.
func startOpenVSwitch(t *testing.T, state string, rails []*rail) {
	t.Helper()
	if err := os.MkdirAll(ovsFolder, 0o755); err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(state, "conf.db")
	if _, err := os.Stat(file); errors.Is(err, fs.ErrNotExist) {
		testlab.Run(t, "ovsdb-tool", "create", file, "/usr/share/openvswitch/vswitch.ovsschema")
	}
	service(t, "ovsdb-server", file, "--remote=punix:"+database, "--pidfile", "--no-chdir", "-vconsole:off",
		"--log-file=/tmp/ovsdb.log")
	testlab.Eventually(t, "ovsdb-server answers", func() bool {
		connection, err := net.Dial("unix", database)
		if err == nil {
			_ = connection.Close()
		}
		return err == nil
	})
	vsctl(t, "--no-wait", "init")
	vsctl(t, "--no-wait", "set", "Open_vSwitch", ".", "other_config:hw-offload=true", "other_config:n-handler-threads=1",
		"other_config:n-revalidator-threads=1")
	service(t, "ovs-vswitchd", "unix:"+database, "--pidfile", "--no-chdir", "-vconsole:off",
		"--log-file=/tmp/vswitchd.log")
	for _, rail := range rails {
		vsctl(t, "--may-exist", "add-br", rail.bridge(), "--", "set", "bridge", rail.bridge(), "fail_mode=secure",
			fmt.Sprintf("other-config:hwaddr=%q", rail.bridgeMAC()), "--",
			"--may-exist", "add-port", rail.bridge(), rail.uplink())
		// ovs-vsctl waits only for its own changes, not for a bridge that was already in the database.
		testlab.Eventually(t, rail.bridge()+" exists", func() bool {
			_, err := os.Stat("/sys/class/net/" + rail.bridge())
			return err == nil
		})
		testlab.Run(t, "ip", "link", "set", rail.bridge(), "mtu", railMTU, "up")
		testlab.Run(t, "ip", "address", "add", rail.hostAddress()+"/31", "dev", rail.bridge())
		testlab.Run(t, "ip", "address", "add", rail.hostAddress6()+"/127", "dev", rail.bridge(), "nodad")
	}
}

func service(t *testing.T, argv ...string) {
	t.Helper()
	_, _ = startService(t, argv...)
}

// startService starts a daemon that is stopped at the end of the test. ended is closed when it exits. Its output is
// logged if the test fails.
func startService(t *testing.T, argv ...string) (running *exec.Cmd, ended chan struct{}) {
	t.Helper()
	name := filepath.Base(argv[0])
	log, err := os.OpenFile("/tmp/"+name+".out", os.O_CREATE|os.O_APPEND|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	command := exec.Command(argv[0], argv[1:]...)
	command.Stdout, command.Stderr = log, log
	command.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := testlab.Start(command); err != nil {
		t.Fatal(err)
	}
	ended = make(chan struct{})
	go func() {
		_ = command.Wait()
		close(ended)
	}()
	t.Cleanup(func() {
		_ = command.Process.Kill()
		<-ended
		_ = log.Close()
		if t.Failed() {
			logEnd(t, log.Name())
		}
	})
	return command, ended
}

func logEnd(t *testing.T, path string) {
	t.Helper()
	told, _ := os.ReadFile(path)
	t.Logf("%s ends:\n%s", path, told[max(0, len(told)-6000):])
}

func vsctl(t *testing.T, arguments ...string) string {
	t.Helper()
	return testlab.Run(t, append([]string{"ovs-vsctl", "--db=unix:" + database, "--timeout=60"}, arguments...)...)
}

func appctl(t *testing.T, arguments ...string) string {
	t.Helper()
	return testlab.Run(t, append([]string{"ovs-appctl"}, arguments...)...)
}

// ports returns the bridge's ports except the uplink.
func (r *rail) ports(t *testing.T) []string {
	t.Helper()
	var found []string
	for port := range strings.FieldsSeq(vsctl(t, "list-ports", r.bridge())) {
		if port != r.uplink() {
			found = append(found, port)
		}
	}
	return found
}
