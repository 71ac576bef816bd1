//go:build k8s

package kubernetes

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"railwright/node/internal/nodehealth"
	"railwright/node/internal/tenants"
	"railwright/node/internal/tenants/directory"
)

// daemon is a node's part in the directory, with the rights of its daemon.
type daemon struct {
	*directory.Directory
	*traffic
	server *server
	name   string
	stop   func()
}

// traffic counts what a daemon asks the API server for.
type traffic struct {
	mutex sync.Mutex
	// writes counts requests that write; read counts the bytes of answers by resource.
	writes int
	read   map[string]int
}

// resourceOf returns the resource of a path.
func resourceOf(path string) string {
	for _, resource := range []string{"tenantmembers", "addressclaims", "railnodes", "railepochs", "tenants", "tenantpeerings", "namespaces", "nodes", "events"} {
		if strings.HasSuffix(path, "/"+resource) || strings.Contains(path, "/"+resource+"/") && resource != "namespaces" {
			return resource
		}
	}
	return "namespaces"
}

type counting struct {
	traffic *traffic
	next    http.RoundTripper
}

func (c counting) RoundTrip(request *http.Request) (*http.Response, error) {
	resource := resourceOf(request.URL.Path)
	c.traffic.mutex.Lock()
	if request.Method != http.MethodGet && resource != "events" {
		c.traffic.writes++
	}
	c.traffic.mutex.Unlock()
	response, err := c.next.RoundTrip(request)
	if err == nil {
		response.Body = countingBody{response.Body, c.traffic, resource}
	}
	return response, err
}

type countingBody struct {
	io.ReadCloser
	traffic  *traffic
	resource string
}

func (c countingBody) Read(into []byte) (int, error) {
	count, err := c.ReadCloser.Read(into)
	c.traffic.mutex.Lock()
	defer c.traffic.mutex.Unlock()
	c.traffic.read[c.resource] += count
	return count, err
}

func (t *traffic) written() int {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.writes
}

func (t *traffic) received(resource string) int {
	t.mutex.Lock()
	defer t.mutex.Unlock()
	return t.read[resource]
}

func (s *server) start(name, folder string) *daemon {
	s.t.Helper()
	return s.startWith(name, folder, func(store *Store) tenants.Store { return store })
}

// startWith starts a daemon whose store wrap returns.
func (s *server) startWith(name, folder string, wrap func(*Store) tenants.Store) *daemon {
	s.t.Helper()
	counted := &traffic{read: map[string]int{}}
	config := s.daemon(name)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return counting{counted, next} })
	store, err := New(config, name, nil, nil)
	must(s.t, err)
	ctx, cancel := context.WithCancel(context.Background())
	opened, err := directory.Open(ctx, directory.Settings{Node: name, Folder: folder, Store: wrap(store), Machine: "machine-" + name, Boot: "1"})
	must(s.t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		store.Run(ctx)
	}()
	d := &daemon{Directory: opened, traffic: counted, server: s, name: name}
	d.stop = sync.OnceFunc(func() {
		cancel()
		opened.Close()
		<-ended
	})
	s.t.Cleanup(d.stop)
	return d
}

func (d *daemon) claim(bound time.Duration, tenant, address string) error {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	return d.Claim(ctx, tenants.Claim{
		Tenant: tenant, Rail: "rail0", Owner: "net/" + d.name + "/" + address, Addresses: []netip.Addr{netip.MustParseAddr(address)},
	})
}

func (d *daemon) release(address string) {
	d.server.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	must(d.server.t, d.Release(ctx, []netip.Addr{netip.MustParseAddr(address)}))
}

// sees returns the tenant that flows take the address for.
func (d *daemon) sees(address string) string {
	for _, member := range d.Since(0).Added {
		if member.Prefix.Contains(netip.MustParseAddr(address)) {
			return member.Tenant
		}
	}
	return ""
}

func (d *daemon) seesTenant(address, tenant string) {
	d.server.t.Helper()
	d.server.eventually(fmt.Sprintf("%s admits %s for %q", d.name, address, tenant), func() error {
		if seen := d.sees(address); seen != tenant {
			return fmt.Errorf("it admits it for %q; %q", seen, d.Problems())
		}
		return nil
	})
}

// tenant returns the tenant of a namespace.
func (d *daemon) tenant(namespace string) string {
	d.server.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	tenant, err := d.TenantOf(ctx, namespace)
	must(d.server.t, err)
	return tenant
}

func (d *daemon) tenantOf(namespace, want string) {
	d.server.t.Helper()
	d.server.eventually(fmt.Sprintf("%s is the tenant of %s", want, namespace), func() error {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if got, err := d.TenantOf(ctx, namespace); err != nil || got != want {
			return fmt.Errorf("%q, %v", got, fmt.Sprint(err))
		}
		return nil
	})
}

// as returns a client with the configuration.
func (s *server) as(config *rest.Config) dynamic.Interface {
	s.t.Helper()
	client, err := dynamic.NewForConfig(config)
	must(s.t, err)
	return client
}

// object returns a custom object.
func object(kind, namespace, name string, spec map[string]any) *unstructured.Unstructured {
	made := &unstructured.Unstructured{Object: map[string]any{"spec": spec}}
	made.SetAPIVersion(group + "/" + version)
	made.SetKind(kind)
	made.SetNamespace(namespace)
	made.SetName(name)
	return made
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// TestDirectoryInTheAPIServer runs all steps on one server, because starting it takes longest.
func TestDirectoryInTheAPIServer(t *testing.T) {
	s := startServer(t)
	folders := map[string]string{}
	for _, name := range []string{"one", "two", "three"} {
		s.node(name)
		folders[name] = t.TempDir()
	}
	for _, name := range []string{"a", "c", "d"} {
		s.namespace(name)
	}
	first, second, third := s.start("one", folders["one"]), s.start("two", folders["two"]), s.start("three", folders["three"])
	t.Run("invalid objects are refused", func(t *testing.T) { refusals(t, s) })
	t.Run("tenants and peerings", func(t *testing.T) {
		must(t, s.tenant("red", `{namespaces: [a, b], prefixes: [10.1.0.0/16]}`))
		must(t, s.peering("red-c", `{tenants: [red, "ns:c"]}`))
		first.tenantOf("a", "red")
		c := second.tenant("c")
		if name, uid, _ := strings.Cut(c, "@"); name != "ns:c" || uid == "" {
			t.Fatalf("tenant of c is %s", c)
		}
		must(t, first.claim(20*time.Second, "red", "10.1.0.1"))
		must(t, second.claim(20*time.Second, c, "10.3.0.2"))
		first.seesTenant("10.3.0.2", c)
		second.seesTenant("10.1.0.1", "red")
		if err := second.claim(time.Second, "red", "10.9.0.1"); !errors.Is(err, tenants.ErrOutside) {
			t.Errorf("outside: %v", err)
		}
	})
	t.Run("few writes, and nothing for strangers", func(t *testing.T) { costs(t, s, first, third) })
	t.Run("peering ends with its namespace", func(t *testing.T) { peeringEnds(t, s, first, second) })
	t.Run("only operators write networks", func(t *testing.T) { networksOfOperators(t, s) })
	t.Run("address moves to another tenant", func(t *testing.T) {
		c, d := first.tenant("c"), second.tenant("d")
		must(t, first.claim(20*time.Second, c, "10.3.0.1"))
		if err := second.claim(5*time.Second, d, "10.3.0.1"); !errors.Is(err, tenants.ErrTaken) {
			t.Errorf("taken: %v", err)
		}
		must(t, third.claim(20*time.Second, c, "10.3.0.3"))
		third.seesTenant("10.3.0.1", c)
		first.release("10.3.0.1")
		third.seesTenant("10.3.0.1", "")
		must(t, second.claim(20*time.Second, d, "10.3.0.1"))
		third.seesTenant("10.3.0.1", "")
	})
	t.Run("deleted members close and heal", func(t *testing.T) { heals(t, s, first, third) })
	t.Run("a later version's fields", func(t *testing.T) { laterVersion(t, s, first, third) })
	t.Run("upgrade and roll-back", func(t *testing.T) { third = upgrade(t, s, first, second, third, folders["three"]) })
	t.Run("an unreadable object concerns itself alone", func(t *testing.T) { unreadable(t, s, first, third) })
	t.Run("a daemon writes only what its node holds", func(t *testing.T) { trespass(t, s) })
	t.Run("daemon changes one taint of its own Node", func(t *testing.T) { ownTaint(t, s) })
	t.Run("cut off", func(t *testing.T) {
		c := first.tenant("c")
		must(t, first.claim(20*time.Second, c, "10.3.1.1"))
		s.stopAPI()
		if err := first.claim(10*time.Second, c, "10.3.0.50"); !errors.Is(err, tenants.ErrUnreachable) {
			t.Errorf("new address: %v", err)
		}
		if output := strings.Join(first.Stopped(), "\n"); !strings.Contains(output, "unreachable since") {
			t.Errorf("it reports %q", output)
		}
		first.stop()
		first = s.start("one", folders["one"])
		must(t, first.claim(5*time.Second, c, "10.3.1.1"))
		first.seesTenant("10.3.0.3", c)
		s.startAPI()
		s.eventually("a new address is claimed", func() error { return first.claim(20*time.Second, c, "10.3.0.50") })
		third.seesTenant("10.3.0.50", c)
	})
	t.Run("remedies work for cluster-admin", func(t *testing.T) { remedies(t, s, first, second, third) })
}

func refusals(t *testing.T, s *server) {
	for name, text := range map[string]string{
		"host bits": `{prefixes: [10.1.0.1/16]}`, "everything": `{prefixes: ["0.0.0.0/0"]}`, "short": `{prefixes: ["fd00::/8"]}`,
		"no prefix": `{prefixes: [ten]}`, "namespace": `{namespaces: ["A"]}`, "twice": `{namespaces: [a, a]}`,
	} {
		if err := s.tenant("wrong", text); err == nil {
			t.Errorf("%s: %s was accepted", name, text)
		}
	}
	for _, text := range []string{`{tenants: [red]}`, `{tenants: [red, red]}`, `{tenants: [red, "x y"]}`, `{tenants: [a, b, c]}`} {
		if err := s.peering("wrong", text); err == nil {
			t.Errorf("peering %s was accepted", text)
		}
	}
	client := s.as(s.daemon("one"))
	spec := map[string]any{"address": "10.9.9.9", "tenant": "red", "node": "one", "instance": "00000000"}
	if _, err := client.Resource(claimResource).Create(context.Background(), object("AddressClaim", "", "10-9-9-8", spec), metav1.CreateOptions{}); !apierrors.IsInvalid(err) {
		t.Errorf("claim with another address's name: %v", err)
	}
	if _, err := s.try(epochResource, `{id: x}`, "RailEpoch", group+"/"+version, "another"); !apierrors.IsInvalid(err) {
		t.Errorf("second epoch: %v", err)
	}
}

// costs counts the writes of an ADD and a DEL, and what a node without the tenant receives.
func costs(t *testing.T, s *server, first, third *daemon) {
	s.eventually("three has begun", func() error {
		if third.received("railepochs") == 0 || third.received("tenants") == 0 {
			return errors.New("it has not listed")
		}
		return nil
	})
	namespaces, members := third.received("namespaces"), third.received("tenantmembers")
	before := first.written()
	must(t, first.claim(20*time.Second, "red", "10.1.0.7"))
	added := first.written()
	first.release("10.1.0.7")
	if add, remove := added-before, first.written()-added; add != 2 || remove != 2 {
		t.Errorf("an ADD makes %d writes and a DEL %d", add, remove)
	}
	s.namespace("another")
	must(t, first.claim(20*time.Second, first.tenant("another"), "10.3.0.8"))
	first.release("10.3.0.8")
	if now := third.received("tenantmembers"); now != members || members != 0 || third.received("namespaces") != namespaces {
		t.Errorf("a stranger received %d bytes of members and %d of namespaces", now, third.received("namespaces")-namespaces)
	}
}

// membersOf returns the members of a tenant on a node.
func (s *server) membersOf(tenant, node string) *unstructured.Unstructured {
	s.t.Helper()
	list, err := s.admin.Resource(membersResource).Namespace(SpaceName(tenant)).List(context.Background(), metav1.ListOptions{})
	must(s.t, err)
	for i := range list.Items {
		if strings.HasPrefix(list.Items[i].GetName(), node+".") {
			return &list.Items[i]
		}
	}
	s.t.Fatalf("no members of %s on %s", tenant, node)
	return nil
}

// heals deletes members as an administrator, and checks that their node writes them again.
func heals(t *testing.T, s *server, first, third *daemon) {
	c := first.tenant("c")
	must(t, first.claim(20*time.Second, c, "10.3.2.1"))
	third.seesTenant("10.3.2.1", c)
	held := s.membersOf(c, "one")
	in := s.admin.Resource(membersResource).Namespace(SpaceName(c))
	must(t, in.Delete(context.Background(), held.GetName(), metav1.DeleteOptions{}))
	s.eventually("the members are written again", func() error {
		again, err := in.Get(context.Background(), held.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		if again.GetUID() == held.GetUID() {
			return errors.New("they are the deleted ones")
		}
		return nil
	})
	third.seesTenant("10.3.2.1", c)
}

// laterVersion adds fields and labels to the objects of a node, as a daemon of a later version would, and checks that
// others read them, that the node keeps them, and that nothing is a problem.
func laterVersion(t *testing.T, s *server, first, third *daemon) {
	c := first.tenant("c")
	must(t, first.claim(20*time.Second, c, "10.3.3.1"))
	client := s.as(s.daemon("one"))
	patch := []byte(`{"metadata": {"labels": {"team": "network"}}, "spec": {"later": {"number": 12345678901234, "list": [1]}}}`)
	name := s.membersOf(c, "one").GetName()
	ctx := context.Background()
	_, err := client.Resource(membersResource).Namespace(SpaceName(c)).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	must(t, err)
	_, err = client.Resource(machineResource).Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	must(t, err)
	_, err = client.Resource(claimResource).Patch(ctx, "10-3-3-1", types.MergePatchType, patch, metav1.PatchOptions{})
	must(t, err)
	must(t, first.claim(20*time.Second, c, "10.3.3.2"))
	third.seesTenant("10.3.3.1", c)
	third.seesTenant("10.3.3.2", c)
	members := s.membersOf(c, "one")
	if text := fmt.Sprint(members.Object["spec"]); members.GetLabels()["team"] != "network" || !strings.Contains(text, "12345678901234") || !strings.Contains(text, "10.3.3.2") {
		t.Errorf("members are %v", members.Object)
	}
	for _, d := range []*daemon{first, third} {
		if problems := d.Problems(); len(problems) > 0 {
			t.Errorf("%s: %q", d.name, problems)
		}
	}
	first.release("10.3.3.1")
	if _, err := s.admin.Resource(claimResource).Get(ctx, "10-3-3-1", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Errorf("claim with a later field after its release: %v", err)
	}
}

// laterStore writes as a later version does: every spec has a field that this version does not know.
type laterStore struct{ *Store }

func (l laterStore) with(object tenants.Object) tenants.Object {
	object.Spec = tenants.Merge(json.RawMessage(`{"later": {"of": "the next version"}}`), object.Spec)
	return object
}

func (l laterStore) Create(ctx context.Context, object tenants.Object) (tenants.Object, error) {
	return l.Store.Create(ctx, l.with(object))
}

func (l laterStore) Update(ctx context.Context, object tenants.Object) (tenants.Object, error) {
	return l.Store.Update(ctx, l.with(object))
}

// upgrade replaces a node's daemon by one of a later version and back, and checks after each step that all nodes agree about
// the pods of two tenants, old and new ones, and that nothing is a problem.
func upgrade(t *testing.T, s *server, first, second, third *daemon, folder string) *daemon {
	c, d := first.tenant("c"), first.tenant("d")
	want := map[string]string{}
	for step, wrap := range []func(*Store) tenants.Store{
		func(store *Store) tenants.Store { return store },
		func(store *Store) tenants.Store { return laterStore{store} },
		func(store *Store) tenants.Store { return store },
	} {
		third.stop()
		third = s.startWith("three", folder, wrap)
		all := []*daemon{first, second, third}
		for i, node := range all {
			for j, tenant := range []string{c, d} {
				address := fmt.Sprintf("10.3.%d.%d", 20+step, 10*i+j)
				s.eventually(node.name+" claims "+address, func() error { return node.claim(20*time.Second, tenant, address) })
				want[address] = tenant
			}
		}
		for _, node := range all {
			for address, tenant := range want {
				node.seesTenant(address, tenant)
			}
			if problems := append(node.Problems(), node.Stopped()...); len(problems) > 0 {
				t.Errorf("step %d: %s: %q", step, node.name, problems)
			}
		}
	}
	if text := fmt.Sprint(s.membersOf(c, "three").Object["spec"]); !strings.Contains(text, "the next version") {
		t.Errorf("the roll-back dropped the later field: %s", text)
	}
	return third
}

// unreadable makes a node's members of a tenant unreadable, and checks that only these do not count.
func unreadable(t *testing.T, s *server, first, third *daemon) {
	c := first.tenant("c")
	ctx := context.Background()
	s.node("odd")
	in := s.as(s.daemon("odd")).Resource(membersResource).Namespace(SpaceName(c))
	_, err := in.Create(ctx, object("TenantMembers", SpaceName(c), "odd.00000000", map[string]any{"addresses": []any{"fe"}}), metav1.CreateOptions{})
	must(t, err)
	s.eventually("three reports it", func() error {
		if output := strings.Join(third.Problems(), "\n"); !strings.Contains(output, "odd.00000000 do not count") {
			return fmt.Errorf("%q", output)
		}
		return nil
	})
	must(t, first.claim(20*time.Second, c, "10.3.4.1"))
	third.seesTenant("10.3.4.1", c)
	must(t, s.admin.Resource(membersResource).Namespace(SpaceName(c)).Delete(ctx, "odd.00000000", metav1.DeleteOptions{}))
	s.eventually("the problem is gone", func() error {
		if problems := third.Problems(); len(problems) > 0 {
			return fmt.Errorf("%q", problems)
		}
		return nil
	})
}

// trespass checks that an attacker on node three can neither write nor delete what others hold.
func trespass(t *testing.T, s *server) {
	ctx := context.Background()
	attacker := s.as(s.daemon("three"))
	touch := []byte(`{"metadata": {"labels": {"touched": "yes"}}}`)
	seen := map[string]bool{}
	for _, resource := range []string{"addressclaims", "tenantmembers", "railnodes"} {
		at := claimResource
		at.Resource = resource
		list, err := s.admin.Resource(at).List(ctx, metav1.ListOptions{})
		must(t, err)
		for _, held := range list.Items {
			in := func(client dynamic.Interface) dynamic.ResourceInterface {
				if held.GetNamespace() != "" {
					return client.Resource(at).Namespace(held.GetNamespace())
				}
				return client.Resource(at)
			}
			owner, _, _ := unstructured.NestedString(held.Object, "spec", "node")
			if owner == "" {
				owner, _, _ = strings.Cut(held.GetName(), ".")
			}
			ours := owner == "three"
			seen[fmt.Sprint(resource, ours)] = true
			dry := []string{metav1.DryRunAll}
			_, err := in(attacker).Patch(ctx, held.GetName(), types.MergePatchType, touch, metav1.PatchOptions{DryRun: dry})
			if ours != (err == nil) || !ours && !apierrors.IsForbidden(err) {
				t.Errorf("change of %s %s: %v", resource, held.GetName(), err)
			}
			err = in(attacker).Delete(ctx, held.GetName(), metav1.DeleteOptions{DryRun: dry})
			if ours != (err == nil) || !ours && !apierrors.IsForbidden(err) {
				t.Errorf("deletion of %s %s: %v", resource, held.GetName(), err)
			}
			spec := []byte(`{"spec": {"later": "x"}}`)
			if _, err := in(s.admin).Patch(ctx, held.GetName(), types.MergePatchType, spec, metav1.PatchOptions{DryRun: dry}); !apierrors.IsForbidden(err) {
				t.Errorf("an administrator changed %s %s: %v", resource, held.GetName(), err)
			}
			err = in(s.admin).Delete(ctx, held.GetName(), metav1.DeleteOptions{DryRun: dry})
			if allowed := resource == "tenantmembers"; allowed != (err == nil) || !allowed && !apierrors.IsForbidden(err) {
				t.Errorf("an administrator's deletion of %s %s: %v", resource, held.GetName(), err)
			}
		}
	}
	if len(seen) != 6 {
		t.Errorf("only %v were tried", seen)
	}
	stolen := map[string]any{"address": "10.9.9.9", "tenant": "red", "node": "one", "instance": "00000000"}
	for what, err := range map[string]error{
		"a claim for another node": func() error {
			_, err := attacker.Resource(claimResource).Create(ctx, object("AddressClaim", "", "10-9-9-9", stolen), metav1.CreateOptions{})
			return err
		}(),
		"a new epoch": func() error {
			_, err := attacker.Resource(epochResource).Patch(ctx, "epoch", types.MergePatchType, []byte(`{"spec": {"id": "x"}}`), metav1.PatchOptions{})
			return err
		}(),
		"a tenant": attacker.Resource(tenantResource).Delete(ctx, "red", metav1.DeleteOptions{}),
		"a namespace": func() error {
			_, err := attacker.Resource(namespaceResource).Create(ctx, namespaceNamed("other"), metav1.CreateOptions{})
			return err
		}(),
		"an administrator's namespace for members": func() error {
			_, err := s.admin.Resource(namespaceResource).Create(ctx, namespaceNamed(SpaceName("ns:x")), metav1.CreateOptions{})
			return err
		}(),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, client := range []dynamic.Interface{attacker, s.as(s.account("railwright-sweeper", ""))} {
		for _, resource := range []string{"secrets", "pods", "configmaps"} {
			at := namespaceResource
			at.Resource = resource
			if _, err := client.Resource(at).List(ctx, metav1.ListOptions{}); !apierrors.IsForbidden(err) {
				t.Errorf("%s can be listed: %v", resource, err)
			}
		}
	}
}

func namespaceNamed(name string) *unstructured.Unstructured {
	made := &unstructured.Unstructured{}
	made.SetAPIVersion("v1")
	made.SetKind("Namespace")
	made.SetName(name)
	return made
}

// ownTaint reports a rail of node one as down, by the daemon's rights, and checks that these allow nothing else.
func ownTaint(t *testing.T, s *server) {
	client, err := dynamic.NewForConfig(s.daemon("one"))
	must(t, err)
	reporter := nodehealth.New(client, "one", slog.New(slog.DiscardHandler))
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		reporter.Run(ctx)
	}()
	defer func() { cancel(); <-ended }()
	for _, problems := range [][]string{{"rail rail0: uplink pf1 has no carrier"}, nil} {
		reporter.Report(problems)
		s.eventually(fmt.Sprintf("the Node has the taint for %q", problems), func() error {
			node, err := s.admin.Resource(nodeResource).Get(context.Background(), "one", metav1.GetOptions{})
			must(t, err)
			tainted := strings.Contains(fmt.Sprint(node.Object["spec"]), nodehealth.Taint)
			if up := strings.Contains(fmt.Sprint(node.Object["status"]), "AllRailsUp"); tainted != (len(problems) > 0) || up == tainted {
				return fmt.Errorf("%v", node.Object)
			}
			return nil
		})
	}
	for what, refused := range map[string]struct{ node, patch, subresource string }{
		"another Node":      {"two", `{"spec": {"taints": [{"key": "network.railwright.dev/rail-down", "effect": "NoSchedule"}]}}`, ""},
		"another taint":     {"one", `{"spec": {"taints": [{"key": "x", "effect": "NoExecute"}]}}`, ""},
		"labels":            {"one", `{"metadata": {"labels": {"team": "x"}}}`, ""},
		"a cordon":          {"one", `{"spec": {"unschedulable": true}}`, ""},
		"another condition": {"one", `{"status": {"conditions": [{"type": "Ready", "status": "False"}]}}`, "status"},
		"capacity":          {"one", `{"status": {"capacity": {"cpu": "1"}}}`, "status"},
	} {
		_, err := client.Resource(nodeResource).Patch(context.Background(), refused.node, types.MergePatchType, []byte(refused.patch),
			metav1.PatchOptions{}, strings.Fields(refused.subresource)...)
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// remedies tries, as cluster-admin, what the daemon and the documentation advise.
func remedies(t *testing.T, s *server, first, second, third *daemon) {
	ctx := context.Background()
	d := second.tenant("d")
	sweeping, stop := context.WithCancel(ctx)
	defer stop()
	sweeper, err := New(s.account("railwright-sweeper", ""), "", nil, nil)
	must(t, err)
	var swept sync.WaitGroup
	swept.Go(func() { sweeper.Sweep(sweeping, slog.New(slog.DiscardHandler), func(map[string]int) {}) })
	defer swept.Wait()
	defer stop()
	machines := s.admin.Resource(machineResource)
	machineOf := func(node string) *unstructured.Unstructured {
		list, err := machines.List(ctx, metav1.ListOptions{})
		must(t, err)
		for i := range list.Items {
			if strings.HasPrefix(list.Items[i].GetName(), node+".") {
				return &list.Items[i]
			}
		}
		t.Fatalf("no RailNode of %s", node)
		return nil
	}
	annotate := func(name, off string) {
		patch := fmt.Appendf(nil, `{"metadata": {"annotations": {%q: %q}}}`, OffAnnotation, off)
		_, err := machines.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		must(t, err)
	}
	isFreed := func(name string) {
		s.eventually(name+" is freed", func() error {
			if _, err := machines.Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				return fmt.Errorf("it is there: %v", fmt.Sprint(err))
			}
			return nil
		})
	}

	t.Run("a machine whose Node was deleted", func(t *testing.T) {
		must(t, first.claim(20*time.Second, first.tenant("c"), "10.3.8.1"))
		first.stop()
		machine := machineOf("one")
		must(t, s.admin.Resource(nodeResource).Delete(ctx, "one", metav1.DeleteOptions{}))
		if err := second.claim(5*time.Second, d, "10.3.8.1"); !errors.Is(err, tenants.ErrTaken) {
			t.Fatalf("its machine may still run: %v", err)
		}
		if err := machines.Delete(ctx, machine.GetName(), metav1.DeleteOptions{}); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), OffAnnotation) {
			t.Fatalf("deletion: %v", err)
		}
		annotate(machine.GetName(), "another machine's")
		if err := second.claim(5*time.Second, d, "10.3.8.1"); !errors.Is(err, tenants.ErrTaken) {
			t.Fatalf("another Node is off: %v", err)
		}
		uid, _, _ := unstructured.NestedString(machine.Object, "spec", "nodeUID")
		annotate(machine.GetName(), uid)
		isFreed(machine.GetName())
		must(t, second.claim(20*time.Second, d, "10.3.8.1"))
	})
	t.Run("the out-of-service taint", func(t *testing.T) {
		must(t, third.claim(20*time.Second, third.tenant("c"), "10.3.8.2"))
		third.stop()
		name := machineOf("three").GetName()
		taint := []byte(`{"spec": {"taints": [{"key": "node.kubernetes.io/out-of-service", "value": "nodeshutdown", "effect": "NoExecute"}]}}`)
		_, err := s.admin.Resource(nodeResource).Patch(ctx, "three", types.MergePatchType, taint, metav1.PatchOptions{})
		must(t, err)
		isFreed(name)
		must(t, second.claim(20*time.Second, d, "10.3.8.2"))
	})
	t.Run("a Node that held nothing", func(t *testing.T) {
		s.node("brief")
		brief := s.start("brief", t.TempDir())
		s.eventually("it registers", func() error { return brief.claim(20*time.Second, d, "10.3.8.9") })
		brief.release("10.3.8.9")
		brief.stop()
		name := machineOf("brief").GetName()
		must(t, s.admin.Resource(nodeResource).Delete(ctx, "brief", metav1.DeleteOptions{}))
		isFreed(name)
	})
	t.Run("a claim that nobody can read", func(t *testing.T) {
		const name = "fd000000000000000000000000000001"
		spec := map[string]any{"address": "fd00::2", "tenant": "red", "node": "odd", "instance": "00000000"}
		_, err := s.as(s.daemon("odd")).Resource(claimResource).Create(ctx, object("AddressClaim", "", name, spec), metav1.CreateOptions{})
		must(t, err)
		if err := second.claim(5*time.Second, d, "fd00::1"); !errors.Is(err, tenants.ErrTaken) {
			t.Fatalf("%v", err)
		}
		claims := s.admin.Resource(claimResource)
		if err := claims.Delete(ctx, name, metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
			t.Fatalf("deletion: %v", err)
		}
		_, err = claims.Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"metadata": {"annotations": {%q: "yes"}}}`, OffAnnotation), metav1.PatchOptions{})
		must(t, err)
		must(t, claims.Delete(ctx, name, metav1.DeleteOptions{}))
		must(t, second.claim(20*time.Second, d, "fd00::1"))
	})
	t.Run("the epoch after a restore", func(t *testing.T) {
		s.node("silent")
		silent := s.start("silent", t.TempDir())
		s.eventually("it claims", func() error { return silent.claim(20*time.Second, d, "10.3.8.3") })
		silent.stop()
		machine := machineOf("silent")
		s.node("later")
		later := s.start("later", t.TempDir())
		s.eventually("another node registers", func() error { return later.claim(20*time.Second, d, "10.3.8.6") })
		s.backUp()
		s.eventually("an address is claimed after the backup", func() error { return second.claim(20*time.Second, d, "10.3.8.7") })
		for i := range 20 { // more writes than the API server makes at its start
			must(t, second.claim(20*time.Second, d, fmt.Sprintf("10.3.9.%d", i)))
		}
		s.restore()
		if _, err := s.admin.Resource(claimResource).Get(ctx, "10-3-8-7", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			t.Fatalf("the claim after the backup: %v", err)
		}
		s.eventually("a node that was there sees it", func() error {
			err := second.claim(5*time.Second, d, "10.3.8.4")
			if output := strings.Join(second.Stopped(), "\n"); err == nil || !strings.Contains(output, "went back to version") || !strings.Contains(output, "`railwrightd epoch`") {
				return fmt.Errorf("the claim ended with %w, and the node stops for %q", err, output)
			}
			return nil
		})
		_, err := s.admin.Resource(epochResource).Patch(ctx, "epoch", types.MergePatchType, []byte(`{"spec": {"id": "restored-1"}}`), metav1.PatchOptions{})
		must(t, err)
		s.eventually("it waits for the silent node", func() error {
			err := second.claim(5*time.Second, d, "10.3.8.4")
			if output := strings.Join(second.Stopped(), "\n"); err == nil || !strings.Contains(output, "declared off: silent") {
				return fmt.Errorf("the claim ended with %w, and the node stops for %q", err, output)
			}
			return nil
		})
		uid, _, _ := unstructured.NestedString(machine.Object, "spec", "nodeUID")
		annotate(machine.GetName(), uid)
		s.eventually("addresses are claimed again", func() error { return second.claim(20*time.Second, d, "10.3.8.4") })
		s.eventually("others claim too", func() error { return later.claim(20*time.Second, d, "10.3.8.8") })
		if err := later.claim(5*time.Second, d, "10.3.8.7"); !errors.Is(err, tenants.ErrTaken) {
			t.Errorf("an address that was claimed after the backup: %v", err)
		}
		// As `railwrightd epoch` and `railwrightd forget` in the sweeper's pod do.
		if _, err := directory.RaiseEpoch(ctx, sweeper, nil); err != nil {
			t.Errorf("epoch: %v", err)
		}
		s.eventually("addresses are claimed in the next epoch", func() error { return second.claim(20*time.Second, d, "10.3.8.5") })
		later.stop()
		if err := second.claim(5*time.Second, d, "10.3.8.8"); !errors.Is(err, tenants.ErrTaken) {
			t.Errorf("an address of a node that does not answer: %v", err)
		}
		if freed, err := directory.Forget(ctx, sweeper, "later"); err != nil || freed != 1 {
			t.Errorf("forget: %d, %v", freed, err)
		}
		must(t, second.claim(20*time.Second, d, "10.3.8.8"))
	})
}
