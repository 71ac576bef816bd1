package cni

import (
	"context"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"syscall"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"

	nodev1 "railwright/node/api/v1"
	"railwright/node/internal/attachment"
	"railwright/node/internal/cni/cnitest"
	"railwright/node/internal/tombstone"
	"railwright/node/testlab"
)

// bare returns a call with only the fields that a runtime always sets: no prevResult and no namespace.
func bare(t *testing.T, daemon *cnitest.Daemon, command string, more map[string]any) cnitest.Call {
	return cnitest.Call{
		Program: pluginPath(t, "frr-provider-cli"), Command: command, ContainerID: "c1", Interface: "net1",
		Config: config(daemon, "1.1.0", more),
	}
}

func tombstonesOf(t *testing.T, daemon *cnitest.Daemon) []tombstone.Tombstone {
	t.Helper()
	paths, err := tombstone.List(daemon.Tombstones())
	if err != nil {
		t.Fatal(err)
	}
	var found []tombstone.Tombstone
	for _, path := range paths {
		stone, err := tombstone.Read(path)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, stone)
	}
	return found
}

func wantOneTombstone(t *testing.T, daemon *cnitest.Daemon, parts ...attachment.Part) {
	t.Helper()
	found := tombstonesOf(t, daemon)
	if len(found) != 1 {
		t.Fatalf("%d tombstones: %v", len(found), found)
	}
	key := attachment.Key{Network: "sriov_pf1_vf", ContainerID: "c1", Interface: "net1"}
	age := time.Since(found[0].Written)
	if found[0].Key != key || !reflect.DeepEqual(found[0].Parts, parts) || age < 0 || age > time.Minute {
		t.Errorf("tombstone %+v", found[0])
	}
}

func TestAddWithoutDaemonFailsWithAHintInTime(t *testing.T) {
	daemon := cnitest.New(t)
	call := bare(t, daemon, "ADD", map[string]any{"prevResult": result("1.1.0", "/run/netns/p")})
	call.Netns, call.Args = "/run/netns/p", pod1Args
	started := time.Now()
	wantFailure(t, call.Do(t), 11, "railwrightd does not answer", daemon.Socket(), "no such file", "hint: check that railwrightd runs")
	if took := time.Since(started); took < DefaultConnectTimeout/2 {
		t.Errorf("waited only %s for a restarting daemon", took)
	}
	if left := tombstonesOf(t, daemon); len(left) != 0 {
		t.Errorf("unexpected tombstones %v", left)
	}
}

func TestAddWaitsForARestartingDaemon(t *testing.T) {
	daemon := cnitest.New(t)
	served := make(chan error, 1)
	time.AfterFunc(300*time.Millisecond, func() { served <- daemon.Serve() })
	call := bare(t, daemon, "ADD", map[string]any{"prevResult": result("1.1.0", "/run/netns/p"), "connectTimeoutSeconds": 30})
	call.Netns, call.Args = "/run/netns/p", pod1Args
	wantSuccess(t, call.Do(t))
	if err := <-served; err != nil {
		t.Fatal(err)
	}
	wantRequests(t, daemon, request("/run/netns/p", nodev1.Part_PART_ROUTES))
}

func TestDelWithoutDaemonWritesATombstone(t *testing.T) {
	daemon := cnitest.New(t)
	for range 2 {
		wantSuccess(t, bare(t, daemon, "DEL", nil).Do(t))
		wantOneTombstone(t, daemon, attachment.Routes)
	}
	folder, err := os.Stat(daemon.Tombstones())
	if err != nil || folder.Mode().Perm() != 0o700 {
		t.Errorf("%v %v", folder.Mode(), err)
	}
}

func TestDelWithoutDaemonAndTombstoneFails(t *testing.T) {
	daemon := cnitest.New(t)
	file := filepath.Join(daemon.Folder, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	wantFailure(t, bare(t, daemon, "DEL", map[string]any{"stateDir": file}).Do(t), 5,
		"nothing was deleted, and the DEL cannot be saved", "not a directory", "railwrightd does not answer", "hint:")
}

func TestOtherCommandsWithoutDaemonFail(t *testing.T) {
	daemon := cnitest.New(t)
	check := bare(t, daemon, "CHECK", map[string]any{"connectTimeoutSeconds": 0.05})
	check.Netns = "/run/netns/p"
	wantFailure(t, check.Do(t), 11, "railwrightd does not answer")
	wantFailure(t, bare(t, daemon, "STATUS", nil).Do(t), 50, "railwrightd does not answer")
	collect := bare(t, daemon, "GC", map[string]any{"connectTimeoutSeconds": 0.05, "cni.dev/valid-attachments": []any{}})
	wantFailure(t, collect.Do(t), 11, "railwrightd does not answer")
}

// TestHangingDaemonTimesOut has a stopped process: the kernel accepts connections for it, but nobody replies.
func TestHangingDaemonTimesOut(t *testing.T) {
	daemon := cnitest.New(t)
	listener, err := net.Listen("unix", daemon.Socket())
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	call := bare(t, daemon, "ADD", map[string]any{"prevResult": result("1.1.0", "/run/netns/p")})
	call.Netns, call.Args = "/run/netns/p", pod1Args
	// Without a timeout these calls would never end.
	wantFailure(t, call.Do(t), 11, "accepts connections but sent no gRPC greeting within 1s", "hint:")
	if left := tombstonesOf(t, daemon); len(left) != 0 {
		t.Errorf("unexpected tombstones %v", left)
	}
	wantSuccess(t, bare(t, daemon, "DEL", nil).Do(t))
	wantOneTombstone(t, daemon, attachment.Routes)
}

func TestDelLostByTheDaemonIsSaved(t *testing.T) {
	daemon := cnitest.Start(t)
	daemon.Answer = func(ctx context.Context, _ proto.Message) (proto.Message, error) {
		go daemon.Stop()
		<-ctx.Done()
		return nil, nil
	}
	wantSuccess(t, bare(t, daemon, "DEL", nil).Do(t))
	wantOneTombstone(t, daemon, attachment.Routes)
}

const listenVariable = "RAILWRIGHT_TEST_LISTEN"

func listenUntilKilled(path string) {
	listener, err := net.Listen("unix", path)
	if err != nil {
		panic(err)
	}
	_ = os.Chmod(path, 0o666)
	_, _ = listener.Accept()
	select {}
}

func TestSocketOfAnotherUserIsRefused(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("another user's socket needs root")
	}
	daemon := cnitest.New(t)
	if err := os.Chmod(daemon.Folder, 0o777); err != nil {
		t.Fatal(err)
	}
	program := filepath.Join(daemon.Folder, "listener")
	executable, _ := os.Executable()
	if output, err := exec.Command("cp", executable, program).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	listener := exec.Command(program)
	listener.Env = []string{listenVariable + "=" + daemon.Socket()}
	nobody := &syscall.Credential{Uid: 65534, Gid: 65534}
	listener.SysProcAttr = &syscall.SysProcAttr{Credential: nobody, Pdeathsig: syscall.SIGKILL}
	if err := testlab.Start(listener); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Process.Kill(); _ = listener.Wait() }()
	testlab.Eventually(t, "socket", func() bool {
		_, err := os.Stat(daemon.Socket())
		return err == nil
	})
	call := bare(t, daemon, "ADD", map[string]any{"prevResult": result("1.1.0", "/run/netns/p")})
	call.Netns, call.Args = "/run/netns/p", pod1Args
	wantFailure(t, call.Do(t), 11, "must be served by root, got user 65534")
}
