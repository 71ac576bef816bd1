//go:build k8s

package kubernetes

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"

	"railwright/node/internal/nodehealth"
	"railwright/node/internal/tenants"
	"railwright/node/internal/tenants/replica"
)

// daemon is a replica that confirms its views at once.
type daemon struct {
	*replica.Replica
	server *server
	name   string
	stop   func()
}

func (s *server) start(name, folder string) *daemon {
	s.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	store, err := New(s.daemon(name), name, nil, nil)
	if err != nil {
		s.t.Fatal(err)
	}
	opened, err := replica.Open(ctx, replica.Settings{Node: name, Folder: folder, Store: store})
	if err != nil {
		s.t.Fatal(err)
	}
	d := &daemon{Replica: opened, server: s, name: name}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			_, version, changed := d.View([]string{"red", "ns:c"})
			_ = d.Confirm(ctx, version)
			select {
			case <-changed:
			case <-ctx.Done():
			}
		}
	}()
	d.stop = func() {
		cancel()
		d.Close()
		<-done
	}
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
	_ = d.Release(context.Background(), []netip.Addr{netip.MustParseAddr(address)})
}

func (d *daemon) confirmed(address string) []string {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return d.WaitConfirmed(ctx, []netip.Addr{netip.MustParseAddr(address)})
}

func (d *daemon) seesTenant(address, tenant string) {
	d.server.t.Helper()
	d.server.eventually(fmt.Sprintf("%s admits %s for %q", d.name, address, tenant), func() error {
		view, _, _ := d.View([]string{"red", "ns:c"})
		seen := ""
		for _, member := range view.Members {
			if member.Prefix.Contains(netip.MustParseAddr(address)) {
				seen = member.Tenant
			}
		}
		if seen != tenant {
			return fmt.Errorf("it admits it for %q; %q", seen, d.Problems())
		}
		return nil
	})
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
	t.Run("invalid objects are refused", func(t *testing.T) { refusals(t, s) })
	first, second, third := s.start("one", folders["one"]), s.start("two", folders["two"]), s.start("three", folders["three"])
	t.Run("tenants and peerings", func(t *testing.T) {
		must(t, s.tenant("red", `{namespaces: [a, b], prefixes: [10.1.0.0/16]}`))
		s.namespace("c")
		must(t, s.peering("red-c", `{tenants: [red, "ns:c"]}`))
		first.tenantOf("a", "red")
		first.tenantOf("c", "ns:c")
		must(t, first.claim(20*time.Second, "red", "10.1.0.1"))
		must(t, second.claim(20*time.Second, "ns:c", "10.3.0.2"))
		first.seesTenant("10.3.0.2", "ns:c")
		second.seesTenant("10.1.7.7", "red")
		if err := second.claim(time.Second, "red", "10.9.0.1"); !errors.Is(err, tenants.ErrOutside) {
			t.Errorf("outside: %v", err)
		}
	})
	t.Run("peering ends with its namespace", func(t *testing.T) { peeringEnds(t, s, first) })
	t.Run("only operators write networks", func(t *testing.T) { networksOfOperators(t, s) })
	t.Run("address moves to another tenant", func(t *testing.T) {
		must(t, first.claim(20*time.Second, "ns:c", "10.3.0.1"))
		if err := second.claim(5*time.Second, "ns:d", "10.3.0.1"); !errors.Is(err, tenants.ErrTaken) {
			t.Errorf("taken: %v", err)
		}
		third.seesTenant("10.3.0.1", "ns:c")
		first.release("10.3.0.1")
		must(t, second.claim(20*time.Second, "ns:d", "10.3.0.1"))
		third.seesTenant("10.3.0.1", "")
	})
	t.Run("times", func(t *testing.T) { times(t, []*daemon{first, second, third}) })
	t.Run("object with foreign changes", func(t *testing.T) { keepsForeignLabels(t, s, first) })
	t.Run("daemon writes only its own record", func(t *testing.T) { trespass(t, s) })
	t.Run("daemon changes one taint of its own Node", func(t *testing.T) { ownTaint(t, s) })
	t.Run("cut off", func(t *testing.T) {
		s.stopAPI()
		s.eventually("one reports it", func() error {
			if output := strings.Join(first.Stopped(), "\n"); !strings.Contains(output, "unreachable since") {
				return fmt.Errorf("%q", output)
			}
			return nil
		})
		if err := first.claim(10*time.Second, "ns:c", "10.3.0.50"); !errors.Is(err, tenants.ErrUnreachable) {
			t.Errorf("new address: %v", err)
		}
		first.stop()
		first = s.start("one", folders["one"])
		must(t, first.claim(5*time.Second, "ns:c", "10.3.1.1"))
		first.seesTenant("10.3.0.2", "ns:c")
		s.startAPI()
		must(t, first.claim(60*time.Second, "ns:c", "10.3.0.50"))
		second.seesTenant("10.3.0.50", "ns:c")
	})
	t.Run("removed node", func(t *testing.T) { removedNode(t, s, first, second, third) })
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
	if _, err := s.try(nodeAddresses, `{node: one, instance: "00000000", generation: 1, revision: 1}`, "NodeAddresses",
		group+"/"+version, "two.00000000"); err == nil {
		t.Error("record with another node's name was accepted")
	}
}

// claimsInTurn is the number of sequential claims.
const claimsInTurn = 6

func times(t *testing.T, daemons []*daemon) {
	for i, d := range daemons {
		must(t, d.claim(20*time.Second, "ns:c", fmt.Sprintf("10.3.1.%d", i+1)))
	}
	var claims, all []time.Duration
	for i := range claimsInTurn {
		d, address := daemons[i%3], fmt.Sprintf("10.3.2.%d", i+1)
		began := time.Now()
		must(t, d.claim(20*time.Second, "ns:c", address))
		claims = append(claims, time.Since(began))
		if missing := d.confirmed(address); len(missing) > 0 {
			t.Fatalf("not confirmed by %v", missing)
		}
		all = append(all, time.Since(began))
	}
	slices.Sort(claims)
	slices.Sort(all)
	t.Logf("3 nodes, API server, %d sequential claims: Claim p50 %s max %s; until confirmed p50 %s max %s",
		claimsInTurn, claims[claimsInTurn/2], claims[claimsInTurn-1], all[claimsInTurn/2], all[claimsInTurn-1])
}

// keepsForeignLabels checks that foreign labels stay and that the record is written nevertheless.
func keepsForeignLabels(t *testing.T, s *server, d *daemon) {
	list, err := s.admin.Resource(nodeAddresses).List(context.Background(), metav1.ListOptions{})
	must(t, err)
	for i := range list.Items {
		object := &list.Items[i]
		if strings.HasPrefix(object.GetName(), "one.") {
			object.SetLabels(map[string]string{"team": "network"})
			_, err := s.admin.Resource(nodeAddresses).Update(context.Background(), object, metav1.UpdateOptions{})
			must(t, err)
			must(t, d.claim(20*time.Second, "ns:c", "10.3.9.1"))
			got, err := s.admin.Resource(nodeAddresses).Get(context.Background(), object.GetName(), metav1.GetOptions{})
			must(t, err)
			if got.GetLabels()["team"] != "network" || !strings.Contains(fmt.Sprint(got.Object["spec"]), "10.3.9.1") {
				t.Errorf("%v", got.Object)
			}
		}
	}
}

// trespass checks that an attacker on node three cannot write node one's record.
func trespass(t *testing.T, s *server) {
	client, err := dynamic.NewForConfig(s.daemon("three"))
	must(t, err)
	list, err := client.Resource(nodeAddresses).List(context.Background(), metav1.ListOptions{})
	must(t, err)
	for i := range list.Items {
		object := &list.Items[i]
		_, updated := client.Resource(nodeAddresses).Update(context.Background(), object, metav1.UpdateOptions{})
		if ours := strings.HasPrefix(object.GetName(), "three."); ours != (updated == nil) {
			t.Errorf("update of %s: %v", object.GetName(), updated)
		}
		if err := client.Resource(nodeAddresses).Delete(context.Background(), object.GetName(), metav1.DeleteOptions{}); err == nil {
			t.Errorf("%s was deleted", object.GetName())
		}
	}
	if err := client.Resource(tenantObjects).Delete(context.Background(), "red", metav1.DeleteOptions{}); err == nil {
		t.Error("a tenant was deleted")
	}
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
			node, err := s.admin.Resource(nodes).Get(context.Background(), "one", metav1.GetOptions{})
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
		_, err := client.Resource(nodes).Patch(context.Background(), refused.node, types.MergePatchType, []byte(refused.patch),
			metav1.PatchOptions{}, strings.Fields(refused.subresource)...)
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// changesOnlyTheFinalizer checks that a daemon of another node changes nothing of a record that is being deleted but
// its own finalizer.
func changesOnlyTheFinalizer(t *testing.T, s *server, name string) {
	client, err := dynamic.NewForConfig(s.daemon("three"))
	must(t, err)
	for what, change := range map[string]func(*unstructured.Unstructured){
		"labels":           func(object *unstructured.Unstructured) { object.SetLabels(map[string]string{"team": "x"}) },
		"annotations":      func(object *unstructured.Unstructured) { object.SetAnnotations(map[string]string{"a": "x"}) },
		"owners":           func(object *unstructured.Unstructured) { object.SetOwnerReferences(nil) },
		"other finalizers": func(object *unstructured.Unstructured) { object.SetFinalizers(nil) },
	} {
		s.eventually(what+" are refused", func() error {
			object, err := s.admin.Resource(nodeAddresses).Get(context.Background(), name, metav1.GetOptions{})
			must(t, err)
			change(object)
			_, err = client.Resource(nodeAddresses).Update(context.Background(), object, metav1.UpdateOptions{})
			switch {
			case err == nil:
				return errors.New("they were accepted")
			case apierrors.IsInvalid(err), apierrors.IsForbidden(err):
				return nil
			}
			return err
		})
	}
}

// removedNode deletes the Node; the test plays the garbage collector and deletes its record.
func removedNode(t *testing.T, s *server, first, second, third *daemon) {
	must(t, first.claim(20*time.Second, "ns:c", "10.3.8.1"))
	third.seesTenant("10.3.8.1", "ns:c")
	first.stop()
	collector := s.config()
	collector.Impersonate.UserName = "system:serviceaccount:kube-system:generic-garbage-collector"
	collector.Impersonate.Groups = []string{"system:masters"}
	client, err := dynamic.NewForConfig(collector)
	must(t, err)
	name := ""
	list, err := s.admin.Resource(nodeAddresses).List(context.Background(), metav1.ListOptions{})
	must(t, err)
	for _, object := range list.Items {
		if strings.HasPrefix(object.GetName(), "one.") {
			name = object.GetName()
			if owners := object.GetOwnerReferences(); len(owners) != 1 || owners[0].Kind != "Node" || owners[0].Name != "one" {
				t.Errorf("owners %v", owners)
			}
		}
	}
	s.changeFinalizers(name, func(all []string) []string { return append(all, "example.com/hold") })
	must(t, client.Resource(nodeAddresses).Delete(context.Background(), name, metav1.DeleteOptions{}))
	changesOnlyTheFinalizer(t, s, name)
	s.changeFinalizers(name, func(all []string) []string {
		return slices.DeleteFunc(all, func(one string) bool { return one == "example.com/hold" })
	})
	must(t, second.claim(30*time.Second, "ns:d", "10.3.8.1"))
	third.seesTenant("10.3.8.1", "")
	s.eventually("removal of the record", func() error {
		if _, err := s.admin.Resource(nodeAddresses).Get(context.Background(), name, metav1.GetOptions{}); err == nil {
			return errors.New("it still exists")
		}
		return nil
	})
}
