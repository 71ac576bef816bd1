//go:build vmguest

package guest

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"railwright/node/testlab"
)

// rdma tests RoCE between pods with VFs over two rails. Soft-RoCE replaces the NIC's RoCE: its packets (UDP to port
// 4791 from the pod's address) and the flows that forward them are the same.
func rdma(t *testing.T, node *node) {
	for _, module := range []string{"rdma_rxe", "ib_uverbs", "rdma_ucm"} {
		testlab.Run(t, "modprobe", module)
	}
	one, far := node.addPod(t, node.rails[0], 0, "team-a"), node.addPod(t, node.rails[1], 0, "team-a")
	other := node.addPod(t, node.rails[1], 1, "team-b")
	pods := []*pod{one, far, other}
	for index, pod := range pods {
		pod.Run(t, "rdma", "link", "add", device(index), "type", "rxe", "netdev", podInterface)
	}
	for family := range 2 {
		node.rping(t, one, far, family)
		writeBandwidth(t, one, far, family)
	}
	node.wantAllInHardware(t, one, far)
	// A server of another tenant must not be reachable.
	server := rpingServer(t, other, 0)
	if output, err := one.Try("timeout", "20", "rping", "-c", "-C", "1", "-a", other.addresses[0].String()); err == nil {
		t.Errorf("rping reaches another tenant:\n%s", output)
	}
	server()
	for index, pod := range pods {
		pod.Run(t, "rdma", "link", "delete", device(index))
	}
	deletePods(t, pods...)
}

func device(index int) string { return fmt.Sprintf("rxe%d", index) }

// rpingServer starts a server on a pod's address. The caller must call end to stop it.
func rpingServer(t *testing.T, pod *pod, family int) (end func()) {
	t.Helper()
	server := pod.Command("rping", "-s", "-a", pod.addresses[family].String(), "-C", "5")
	if err := testlab.Start(server); err != nil {
		t.Fatal(err)
	}
	testlab.Eventually(t, "rping listens", func() bool {
		output, err := pod.Try("rdma", "resource", "show", "cm_id")
		return err == nil && strings.Contains(output, "state LISTEN")
	})
	return func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	}
}

func (n *node) rping(t *testing.T, from, to *pod, family int) {
	t.Helper()
	defer rpingServer(t, to, family)()
	output := from.Run(t, "timeout", "60", "rping", "-c", "-v", "-C", "5", "-a", to.addresses[family].String(),
		"-I", from.addresses[family].String())
	if count := strings.Count(output, "ping data: "); count != 5 {
		t.Errorf("rping: %d of 5 answers:\n%s", count, output)
	}
	t.Logf("figure: rping %s to %s over two rails: 5 of 5 (Soft-RoCE)", from.addresses[family], to.addresses[family])
}

func writeBandwidth(t *testing.T, from, to *pod, family int) {
	t.Helper()
	words := func(index int, pod *pod) []string {
		gid := gidIndex(t, device(index), pod.addresses[family])
		return []string{"timeout", "120", "ib_write_bw", "-d", device(index), "-x", gid, "-s", "65536", "-n", "200", "-F"}
	}
	server := to.Command(words(1, to)...)
	if err := testlab.Start(server); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = server.Process.Kill()
		_ = server.Wait()
	}()
	testlab.Eventually(t, "ib_write_bw listens", func() bool {
		output, err := to.Try("ss", "-Hltn", "sport", "=", "18515")
		return err == nil && strings.Contains(output, ":18515")
	})
	output := from.Run(t, append(words(0, from), to.addresses[0].String())...)
	for line := range strings.Lines(output) {
		if fields := strings.Fields(line); len(fields) == 5 && fields[0] == "65536" {
			t.Logf("figure: ib_write_bw %s to %s over two rails: 200 of 64 KiB, %s MiB/s (Soft-RoCE; %s)",
				from.addresses[family], to.addresses[family], fields[3], emulated)
			return
		}
	}
	t.Errorf("ib_write_bw printed no bandwidth:\n%s", output)
}

// gidIndex returns the index of the device's GID for the address.
func gidIndex(t *testing.T, device string, address netip.Addr) string {
	t.Helper()
	sixteen := address.As16()
	var words []string
	for index := 0; index < len(sixteen); index += 2 {
		words = append(words, fmt.Sprintf("%02x%02x", sixteen[index], sixteen[index+1]))
	}
	found, err := filepath.Glob("/sys/class/infiniband/" + device + "/ports/1/gids/*")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range found {
		if content, err := os.ReadFile(path); err == nil && strings.TrimSpace(string(content)) == strings.Join(words, ":") {
			return filepath.Base(path)
		}
	}
	t.Fatalf("%s must have a GID for %s, not found among %d", device, address, len(found))
	return ""
}
