package lab

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/containernetworking/cni/libcni"
	types100 "github.com/containernetworking/cni/pkg/types/100"

	"railwright/node/internal/attachment"
	"railwright/node/testlab"
)

// tenantsFile defines a tenant with two namespaces, and two peered tenants.
const tenantsFile = `{"tenants": [{"name": "red", "namespaces": ["red-1", "red-2"]}],
"peerings": [{"tenants": ["ns:green", "ns:blue"]}]}`

// pod is a network namespace that a runtime created for a container.
type pod struct {
	*testlab.Namespace
	node            *node
	namespace, name string
	id              string
	rail            [rails]*attached
}

// attached is an interface of a pod.
type attached struct {
	pod        *pod
	rail       int
	port       string // the bridge's port
	mac        attachment.MAC
	ipv4, ipv6 netip.Addr
}

// liveSet is the set of attachments that should exist.
type liveSet struct {
	mutex sync.Mutex
	all   map[string]*attached // by container and rail
}

func (l *liveSet) list() []*attached {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	var found []*attached
	for _, att := range l.all {
		found = append(found, att)
	}
	return found
}

var podNumber atomic.Int64

func faceOf(rail int) string { return fmt.Sprintf("net%d", rail+1) }

func (nd *node) newPod(t testing.TB, namespace string) *pod {
	t.Helper()
	n := podNumber.Add(1)
	made := &pod{
		Namespace: testlab.NewNamespace(t, "pod"), node: nd, namespace: namespace, name: fmt.Sprintf("pod-%d", n),
		id: fmt.Sprintf("c%d", n),
	}
	made.TakeAddressesAtOnce(t)
	return made
}

// attachedPod creates a pod with an interface on each of these rails, or on all. It is detached at the end of the test.
func (nd *node) attachedPod(t testing.TB, namespace string, on ...int) *pod {
	t.Helper()
	made := nd.newPod(t, namespace)
	if len(on) == 0 {
		on = []int{0, 1}
	}
	for _, rail := range on {
		if err := made.attach(t, rail); err != nil {
			t.Fatalf("ADD of %s on %s to %s: %v", made.name, nd.Name(), railName(rail), err)
		}
	}
	t.Cleanup(func() {
		for _, rail := range on {
			if err := made.detach(t, rail); err != nil {
				t.Errorf("DEL of %s on %s from %s: %v", made.name, nd.Name(), railName(rail), err)
			}
		}
	})
	return made
}

func (p *pod) conf(rail int) *libcni.RuntimeConf {
	return &libcni.RuntimeConf{
		ContainerID: p.id, NetNS: p.Path(), IfName: faceOf(rail), Args: [][2]string{{"IgnoreUnknown", "1"},
			{"K8S_POD_NAMESPACE", p.namespace}, {"K8S_POD_NAME", p.name}, {"K8S_POD_UID", "u-" + p.id}},
	}
}

func boundedContext(t testing.TB) (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.WithoutCancel(t.Context()), 60*time.Second)
}

// add runs ADD of the whole chain only.
func (p *pod) add(t testing.TB, rail int) (*attached, error) {
	ctx, cancel := boundedContext(t)
	defer cancel()
	runtime := p.node.runtime
	cniResult, err := runtime.cni.AddNetworkList(ctx, runtime.lists[rail], p.conf(rail))
	if err != nil {
		return nil, err
	}
	result, err := types100.NewResultFromResult(cniResult)
	if err != nil {
		return nil, err
	}
	return p.read(rail, result)
}

// read converts the chain's result.
func (p *pod) read(rail int, result *types100.Result) (*attached, error) {
	made := &attached{pod: p, rail: rail}
	for _, face := range result.Interfaces {
		if face.Sandbox == "" {
			made.port = face.Name
		} else if mac, err := attachment.ParseMAC(face.Mac); err == nil {
			made.mac = mac
		}
	}
	for _, address := range result.IPs {
		if found, _ := netip.AddrFromSlice(address.Address.IP); found.Unmap().Is4() {
			made.ipv4 = found.Unmap()
		} else {
			made.ipv6 = found
		}
	}
	if made.port == "" || !made.ipv4.IsValid() || !made.ipv6.IsValid() {
		return nil, fmt.Errorf("chain's result is incomplete: %+v", result)
	}
	return made, nil
}

// attach runs ADD as a runtime does: it runs DEL if the chain fails.
func (p *pod) attach(t testing.TB, rail int) error {
	made, err := p.add(t, rail)
	if err != nil {
		return errors.Join(err, p.detach(t, rail))
	}
	p.rail[rail] = made
	live := &p.node.fabric.live
	live.mutex.Lock()
	live.all[p.id+railName(rail)] = made
	live.mutex.Unlock()
	return p.finish(rail)
}

const maxRetries = 3

// attachLikeKubelet attaches again after an error that asks for it, as kubelet does: a claim is not published in time
// if the machine or its disk stalls for seconds.
func (p *pod) attachLikeKubelet(t testing.TB, rail int) error {
	err := p.attach(t, rail)
	for again := 0; err != nil && strings.Contains(err.Error(), "try again") && again < maxRetries; again++ {
		t.Logf("tried again: %v", err)
		err = p.attach(t, rail)
	}
	return err
}

// finish configures what the userspace datapath and a pod on two rails need: checksums in software, and replies by the
// interface that received the request.
func (p *pod) finish(rail int) error {
	face, table := faceOf(rail), fmt.Sprint(100+rail)
	made := p.rail[rail]
	lines := []string{
		fmt.Sprintf("ethtool -K %s tx off", face),
		fmt.Sprintf("ip rule add from %s table %s", made.ipv4, table), fmt.Sprintf("ip -6 rule add from %s table %s", made.ipv6, table),
		fmt.Sprintf("ip route add default via 10.%d.%d.1 dev %s table %s", rail+1, p.node.N, face, table),
		fmt.Sprintf("ip -6 route add default via fd00:%d:%d::1 dev %s table %s", rail+1, p.node.N, face, table),
	}
	for _, line := range lines {
		if output, err := p.Try(strings.Fields(line)...); err != nil {
			return fmt.Errorf("%s: %w: %s", line, err, output)
		}
	}
	return nil
}

// del runs DEL of the whole chain.
func (p *pod) del(t testing.TB, rail int) error {
	return p.node.runtime.delete(t, p.node.runtime.lists[rail], p.conf(rail))
}

// detach runs DEL and removes the attachment from the live set.
func (p *pod) detach(t testing.TB, rail int) error {
	p.forget(rail)
	return p.del(t, rail)
}

func (p *pod) forget(rail int) {
	live := &p.node.fabric.live
	live.mutex.Lock()
	delete(live.all, p.id+railName(rail))
	live.mutex.Unlock()
	p.rail[rail] = nil
}

func (a *attached) addresses() []netip.Addr { return []netip.Addr{a.ipv4, a.ipv6} }

// address returns the address of a family, 4 or 6.
func (a *attached) address(family int) netip.Addr {
	if family == 4 {
		return a.ipv4
	}
	return a.ipv6
}
