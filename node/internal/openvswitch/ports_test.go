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

// hostileNames are valid interface names that have a meaning to ovs-ofctl, in its output or to a shell.
var hostileNames = []string{
	"x,actions=drop", "a)b(c),in_port", `q"q'q\`, "$(reboot);|&", "-O", "in_port(1),eth", "*", "br-rail0,x",
}

func TestHostilePortNamesAreOnlyNames(t *testing.T) {
	t.Parallel()
	rail := newLab(t)
	others := testlab.NewNamespace(t, "others")
	for n, name := range hostileNames {
		other := "v" + string(rune('a'+n))
		// Only the long form makes ip take any name literally.
		testlab.Run(t, "ip", "link", "add", "name", other, "netns", rail.host.Name, "type", "veth", "peer", "name", other,
			"netns", others.Name)
		testlab.Run(t, "ip", "-n", rail.host.Name, "link", "set", "dev", other, "name", name)
		// Added through the database, because ovs-vsctl would parse some of the names.
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
		testlab.Eventually(t, "removal of the port", func() bool {
			facts, _ := rail.client.Facts(t.Context(), rail.rail)
			return facts.Ports[name] == 0 && facts.UplinkPort != 0
		})
	}
}

// addRow adds a pod's port as ovs-cni does, through the database's protocol.
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

func TestOnlyPodPortsAreRemoved(t *testing.T) {
	t.Parallel()
	rail := newLab(t)
	pod := rail.addPod(t, 2, "a")
	other := testlab.NewNamespace(t, "other")
	testlab.Cable(t, rail.host, "stranger", other, "eth0")
	rail.open.AddPort(t, bridgeName, "stranger")
	made, err := rail.client.PodPorts(t.Context())
	if err != nil || !slices.Equal(made, []PodPort{{"veth2", pod.namespace.Path()}}) {
		t.Errorf("ports of pods: %v %v", made, err)
	}
	for _, test := range []struct{ face, netns, problem string }{
		{"p0", pod.namespace.Path(), "was not created for a pod"},
		{bridgeName, pod.namespace.Path(), "was not created for a pod"},
		{"stranger", pod.namespace.Path(), "was not created for a pod"},
		{"not-there", pod.namespace.Path(), ""},
		// It now belongs to another pod and stays.
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

func TestBridgeOfWaitsForThePortAndNamesTheProblem(t *testing.T) {
	t.Parallel()
	rail := newLab(t)
	rail.open.Vsctl(t, "add-br", "br-other", "--", "set", "bridge", "br-other", "datapath_type=netdev")
	rail.open.Vsctl(t, "--no-wait", "add-port", bridgeName, "no-device")
	elsewhere := testlab.NewNamespace(t, "else")
	testlab.Cable(t, rail.host, "foreign", elsewhere, "eth0")
	rail.open.Vsctl(t, "add-port", "br-other", "foreign")
	for face, problem := range map[string]string{
		"foreign":   `must be a port of a rail's bridge (br-rail0), got "br-other"`,
		"no-device": "cannot use",
		"nowhere":   "must be a port of a rail's bridge; add it",
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

	// All but the port exists before the call, which waits at most 2 s.
	testlab.Cable(t, rail.host, "veth9", elsewhere, "eth9")
	found := make(chan error, 1)
	go func() {
		_, err := rail.client.BridgeOf(t.Context(), "veth9")
		found <- err
	}()
	rail.open.Vsctl(t, "add-port", bridgeName, "veth9")
	if err := <-found; err != nil {
		t.Errorf("port added during the call: %v", err)
	}
}

func TestMeterLimitsRate(t *testing.T) {
	t.Parallel()
	rail := newLab(t)
	first, second := rail.addPod(t, 2, "a"), rail.addPod(t, 3, "a")
	for _, pod := range rail.pods {
		rail.member("a", pod.Addresses...)
	}
	first.MaxRate = 8_000_000
	rail.program(t)
	want := formatMeter(first.MaxRate)
	meters, err := rail.client.meters(t.Context(), bridgeName)
	if err != nil || len(meters) != 2 || meters[4] != want || meters[5] != want {
		t.Errorf("meters %v, want 4 and 5 with %s: %v", meters, want, err)
	}

	// Sends far more than the bucket of 100 ms holds; the excess is dropped before it gets anywhere.
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

// deleteFlows deletes a pod's flows one by one. Its meters remain until their last flow is gone, and other pods keep
// theirs.
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
	if len(gone) != 3 { // what the pod sends, and what it receives at each address
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
			t.Errorf("a flow was deleted with a meter: %v %v", differences, err)
		}
		meters, err := l.client.meters(t.Context(), bridgeName)
		if want := metersOf(left); err != nil || !maps.Equal(meters, want) {
			t.Errorf("with %d flows of the pod left: meters %v, want %v: %v", len(gone)-n-1, meters, want, err)
		}
	}
}

// changeRate changes a pod's rate, then removes it.
func (l *lab) changeRate(t *testing.T, pod *labPod) {
	t.Helper()
	pod.MaxRate = 16_000_000
	want := l.flows(t)
	if differences, err := l.client.Differences(t.Context(), bridgeName, want); err != nil || len(differences) != 2 {
		t.Errorf("another rate is not reported: %v %v", differences, err)
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
		t.Errorf("unused meters remain: %v %v", meters, err)
	}
}
