package openvswitch

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"railwright/node/internal/plan"
	"railwright/node/testlab"
)

// Names that the kernel takes and that mean something to ovs-ofctl, to its output, to a shell.
var hostileNames = []string{
	"x,actions=drop", "a)b(c),in_port", `q"q'q\`, "$(reboot);|&", "-O", "in_port(1),eth", "*", "br-rail0,x",
}

func TestHostileNamesOfPortsAreOnlyNames(t *testing.T) {
	t.Parallel()
	rail := newLab(t)
	others := testlab.NewNamespace(t, "others")
	for n, name := range hostileNames {
		other := "v" + string(rune('a'+n))
		// ip reads a name as it is only where it says so.
		testlab.Run(t, "ip", "link", "add", "name", other, "netns", rail.host.Name, "type", "veth", "peer", "name", other,
			"netns", others.Name)
		testlab.Run(t, "ip", "-n", rail.host.Name, "link", "set", "dev", other, "name", name)
		// Through the database: ovs-vsctl would take some of the names for its own words.
		rail.addRow(t, name)
	}
	rail.programHost(t)
	var facts plan.Facts
	for n, name := range hostileNames {
		bridge, err := rail.client.BridgeOf(t.Context(), name)
		if err != nil || bridge != bridgeName {
			t.Errorf("%q: %q %v", name, bridge, err)
		}
		facts, err = rail.client.Facts(t.Context(), rail.rail)
		if err != nil || facts.Ports[name] == 0 {
			t.Fatalf("%q: %+v %v", name, facts.Ports, err)
		}
		pod := &labPod{Attachment: newAttachment(2+n, "a", name, "02:00:00:01:00:05")}
		pod.MAC[5] = byte(2 + n)
		rail.pods = append(rail.pods, pod)
		rail.member("a", pod.Addresses...)
	}
	want := rail.flows(t)
	if repaired, err := rail.client.Replace(t.Context(), bridgeName, want); err != nil || repaired == 0 {
		t.Errorf("%d repaired: %v", repaired, err)
	}
	if _, err := rail.client.Datapath(t.Context()); err != nil {
		t.Error(err)
	}
	for _, name := range hostileNames {
		if err := rail.client.RemovePort(t.Context(), name, "/run/netns/x"); err != nil {
			t.Errorf("%q: %v", name, err)
		}
		testlab.Eventually(t, "the port is gone", func() bool {
			facts, _ := rail.client.Facts(t.Context(), rail.rail)
			return facts.Ports[name] == 0 && facts.UplinkPort != 0
		})
	}
}

// addRow makes a pod's port as ovs-cni does it, by the database's own protocol.
func (l *lab) addRow(t *testing.T, name string) {
	t.Helper()
	quoted := strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(name)
	transaction := `["Open_vSwitch",
	 {"op":"insert","table":"Interface","uuid-name":"i","row":{"name":"` + quoted + `"}},
	 {"op":"insert","table":"Port","uuid-name":"p","row":{"name":"` + quoted + `","interfaces":["named-uuid","i"],
	  "external_ids":["map",[["owner","ovs-cni.network.kubevirt.io"]]]}},
	 {"op":"mutate","table":"Bridge","where":[["name","==","` + bridgeName + `"]],
	  "mutations":[["ports","insert",["set",[["named-uuid","p"]]]]]}]`
	rows := testlab.Run(t, "ovsdb-client", "transact", "unix:"+l.open.DatabaseSocket(), transaction)
	if strings.Contains(rows, "error") {
		t.Fatal(rows)
	}
}

func TestOnlyPodsPortsAreRemoved(t *testing.T) {
	t.Parallel()
	rail := newLab(t)
	pod := rail.addPod(t, 2, "a")
	other := testlab.NewNamespace(t, "other")
	testlab.Cable(t, rail.host, "stranger", other, "eth0")
	rail.open.AddPort(t, bridgeName, "stranger")
	made, err := rail.client.PodPorts(t.Context())
	if err != nil || !slices.Equal(made, []PodPort{{"veth2", pod.namespace.Path()}}) {
		t.Errorf("made for pods: %v %v", made, err)
	}
	for _, test := range []struct{ face, netns, problem string }{
		{"p0", pod.namespace.Path(), "was not made for a pod"},
		{bridgeName, pod.namespace.Path(), "was not made for a pod"},
		{"stranger", pod.namespace.Path(), "was not made for a pod"},
		{"not-there", pod.namespace.Path(), ""},
		// It is another pod's by now: left alone, and that is fine.
		{"veth2", "/run/netns/another", ""},
	} {
		err := rail.client.RemovePort(t.Context(), test.face, test.netns)
		if (err != nil) != (test.problem != "") || err != nil && !strings.Contains(err.Error(), test.problem) {
			t.Errorf("%s: %v", test.face, err)
		}
	}
	if ports := strings.Fields(rail.open.Vsctl(t, "list-ports", bridgeName)); len(ports) != 3 {
		t.Errorf("ports left: %v", ports)
	}
	for range 2 {
		if err := rail.client.RemovePort(t.Context(), "veth2", pod.namespace.Path()); err != nil {
			t.Error(err)
		}
	}
	if ports := rail.open.Vsctl(t, "list-ports", bridgeName); strings.Contains(ports, "veth2") {
		t.Errorf("ports left: %v", ports)
	}
}

func TestBridgeOfWaitsForAPortAndNamesWhatIsWrong(t *testing.T) {
	t.Parallel()
	rail := newLab(t)
	rail.open.Vsctl(t, "add-br", "br-other", "--", "set", "bridge", "br-other", "datapath_type=netdev")
	rail.open.Vsctl(t, "--no-wait", "add-port", bridgeName, "no-device")
	elsewhere := testlab.NewNamespace(t, "else")
	testlab.Cable(t, rail.host, "foreign", elsewhere, "eth0")
	rail.open.Vsctl(t, "add-port", "br-other", "foreign")
	for face, problem := range map[string]string{
		"foreign":   `is a port of "br-other", which is no rail's bridge; the rails' are br-rail0`,
		"no-device": "cannot use",
		"nowhere":   "is a port of no bridge",
	} {
		testlab.UntilRight(t, func() string {
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			_, err := rail.client.BridgeOf(ctx, face)
			if err != nil && strings.Contains(err.Error(), problem) {
				return ""
			}
			return fmt.Sprintf("%s: %v", face, err)
		})
	}

	// All but the port itself is there before: it is waited for no longer than 2 s.
	testlab.Cable(t, rail.host, "veth9", elsewhere, "eth9")
	found := make(chan error, 1)
	go func() {
		_, err := rail.client.BridgeOf(t.Context(), "veth9")
		found <- err
	}()
	rail.open.Vsctl(t, "add-port", bridgeName, "veth9")
	if err := <-found; err != nil {
		t.Errorf("a port that came a moment later: %v", err)
	}
}

func TestARateIsHeldByAMeter(t *testing.T) {
	t.Parallel()
	rail := newLab(t)
	first, second := rail.addPod(t, 2, "a"), rail.addPod(t, 3, "a")
	for _, pod := range rail.pods {
		rail.member("a", pod.Addresses...)
	}
	first.MaxRate = 8_000_000
	rail.program(t)
	want := meterWords(first.MaxRate)
	meters, err := rail.client.meters(t.Context(), bridgeName)
	if err != nil || len(meters) != 2 || meters[4] != want || meters[5] != want {
		t.Errorf("meters %v, want 4 and 5 with %s: %v", meters, want, err)
	}

	// Far more than the bucket of 100 ms holds, as fast as it goes: what is above is dropped before it gets anywhere.
	here, there := testlab.OpenWire(t, first.namespace, "eth0"), testlab.OpenWire(t, second.namespace, "eth0")
	big := testlab.UDP(first.ipv4(), second.ipv4(), 7, 7, append(marker[:], make([]byte, 1200)...))
	frame := testlab.Ether(gateway, first.MAC, testlab.EtherIPv4, testlab.IPv4(first.ipv4(), second.ipv4(), 17, 0, big))
	for n := range datagrams {
		here.Send(t, frame)
		if n%40 == 39 {
			askGateway(t, here, first)
		}
	}
	if arrived := there.Count(marked); arrived == 0 || arrived == datagrams {
		t.Errorf("%d of %d datagrams arrived through a meter", arrived, datagrams)
	}

	rail.changeRate(t, first)
	rail.deleteFlows(t, first)
}

// deleteFlows of a pod, one after the other: its meters are there until the last flow that has them is gone, and others
// keep theirs.
func (l *lab) deleteFlows(t *testing.T, pod *labPod) {
	t.Helper()
	other := l.pods[1]
	pod.MaxRate, other.MaxRate = 8_000_000, 8_000_000
	var gone, stay []plan.Flow
	for _, flow := range l.flows(t) {
		number, _, _ := plan.ParseCookie(flow.Cookie)
		if flow.Meter != 0 && number == pod.Number {
			gone = append(gone, flow)
		} else {
			stay = append(stay, flow)
		}
	}
	if len(gone) != 3 { // what it sends, and what it receives at each of its addresses
		t.Fatalf("%d flows of the pod have a meter: %v", len(gone), gone)
	}
	if err := l.client.Change(t.Context(), bridgeName, slices.Concat(stay, gone), nil); err != nil {
		t.Fatal(err)
	}
	for n, flow := range gone {
		if err := l.client.Change(t.Context(), bridgeName, nil, []plan.Flow{flow}); err != nil {
			t.Fatal(err)
		}
		left := slices.Concat(stay, gone[n+1:])
		if differences, err := l.client.Differences(t.Context(), bridgeName, left); err != nil || len(differences) != 0 {
			t.Errorf("a flow went along with a meter: %v %v", differences, err)
		}
		meters, err := l.client.meters(t.Context(), bridgeName)
		if want := metersOf(left); err != nil || !maps.Equal(meters, want) {
			t.Errorf("with %d flows of the pod left: meters %v, want %v: %v", len(gone)-n-1, meters, want, err)
		}
	}
}

// changeRate of a pod to another one, and to none.
func (l *lab) changeRate(t *testing.T, pod *labPod) {
	t.Helper()
	pod.MaxRate = 16_000_000
	want := l.flows(t)
	if differences, err := l.client.Differences(t.Context(), bridgeName, want); err != nil || len(differences) != 2 {
		t.Errorf("another rate is no difference: %v %v", differences, err)
	}
	if err := l.client.Change(t.Context(), bridgeName, want, nil); err != nil {
		t.Error(err)
	}
	if differences, err := l.client.Differences(t.Context(), bridgeName, want); err != nil || len(differences) != 0 {
		t.Errorf("still different: %v %v", differences, err)
	}
	pod.MaxRate = 0
	if _, err := l.client.Replace(t.Context(), bridgeName, l.flows(t)); err != nil {
		t.Error(err)
	}
	if meters, err := l.client.meters(t.Context(), bridgeName); err != nil || len(meters) != 0 {
		t.Errorf("meters that nobody needs: %v %v", meters, err)
	}
}
