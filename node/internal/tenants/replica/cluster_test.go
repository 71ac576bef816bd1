package replica

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"railwright/node/internal/plan"
	"railwright/node/internal/tenants"
	"railwright/node/internal/tenants/folder"
	"railwright/node/testlab"
)

// cluster is a set of real replicas over a real folder.
type cluster struct {
	t      testing.TB
	folder string
}

func newCluster(t testing.TB, policy string) *cluster {
	c := &cluster{t: t, folder: t.TempDir()}
	c.policy(policy)
	return c
}

func (c *cluster) policy(text string) {
	c.t.Helper()
	temporary := filepath.Join(c.folder, ".new")
	if err := os.WriteFile(temporary, []byte(text), 0o600); err != nil {
		c.t.Fatal(err)
	}
	if err := os.Rename(temporary, filepath.Join(c.folder, "tenants.json")); err != nil {
		c.t.Fatal(err)
	}
}

// node is a replica with a switch, which implements and confirms each view.
type node struct {
	*Replica
	cluster *cluster
	name    string
	state   string
	stop    context.CancelFunc
	done    sync.WaitGroup

	mutex  sync.Mutex
	local  map[string]int
	flows  plan.Tenants
	frozen bool
	again  chan struct{}
}

func (c *cluster) start(name string) *node {
	c.t.Helper()
	n := &node{cluster: c, name: name, state: filepath.Join(c.t.TempDir(), "state"), local: map[string]int{}, again: make(chan struct{}, 1)}
	n.boot()
	c.t.Cleanup(func() { n.kill() })
	return n
}

func (n *node) boot() {
	n.cluster.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	opened, err := Open(ctx, Settings{Node: n.name, Folder: n.state, Store: folder.New(n.cluster.folder)})
	if err != nil {
		cancel()
		n.cluster.t.Fatal(err)
	}
	n.Replica, n.stop = opened, cancel
	n.done.Add(1)
	go func() {
		defer n.done.Done()
		n.program(ctx)
	}()
}

// kill ends the daemon; the switch keeps its flows.
func (n *node) kill() {
	n.stop()
	n.Close()
	n.done.Wait()
}

func (n *node) program(ctx context.Context) {
	for {
		n.mutex.Lock()
		var local []string
		for tenant, count := range n.local {
			if count > 0 {
				local = append(local, tenant)
			}
		}
		frozen := n.frozen
		n.mutex.Unlock()
		var changed <-chan struct{}
		if !frozen {
			var view plan.Tenants
			var version uint64
			view, version, changed = n.View(local)
			n.mutex.Lock()
			n.flows = view
			n.mutex.Unlock()
			if err := n.Confirm(ctx, version); err != nil {
				n.cluster.t.Errorf("confirm: %v", err)
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-changed:
		case <-n.again:
		}
	}
}

func (n *node) change(do func()) {
	n.mutex.Lock()
	do()
	n.mutex.Unlock()
	select {
	case n.again <- struct{}{}:
	default:
	}
}

func (n *node) freeze(frozen bool) { n.change(func() { n.frozen = frozen }) }

// claim claims addresses within the bound, and counts the tenant as local.
func (n *node) claim(bound time.Duration, tenant string, addresses ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	err := n.Claim(ctx, tenants.Claim{Tenant: tenant, Rail: "rail0", Owner: "net/" + n.name + "/" + addresses[0], Addresses: parse(addresses)})
	if err == nil {
		n.change(func() { n.local[tenant]++ })
	}
	return err
}

// mustClaim retries refused claims, as runtimes do: on a busy machine other nodes can take longer than a replica waits.
func (n *node) mustClaim(tenant string, addresses ...string) {
	n.cluster.t.Helper()
	testlab.UntilRight(n.cluster.t, func() string {
		if err := n.claim(testlab.Patience, tenant, addresses...); err != nil {
			return fmt.Sprintf("%s cannot claim %v for %s: %v", n.name, addresses, tenant, err)
		}
		return ""
	})
}

// mustRefuse waits until a claim is refused with the reason and the text, once all nodes have published their state.
func (n *node) mustRefuse(reason error, want, tenant, address string) {
	n.cluster.t.Helper()
	testlab.UntilRight(n.cluster.t, func() string {
		// A claim that waits for other nodes waits for its whole bound.
		err := n.claim(3*time.Second, tenant, address)
		if err == nil {
			n.cluster.t.Fatalf("%s got %s for %s", n.name, address, tenant)
		}
		if errors.Is(err, reason) && strings.Contains(err.Error(), want) {
			return ""
		}
		return fmt.Sprintf("%s for %s: %v", address, tenant, err)
	})
}

// all returns all problems.
func (n *node) all() []string { return append(n.Stopped(), n.Problems()...) }

func (n *node) release(tenant string, addresses ...string) {
	n.change(func() { n.local[tenant]-- })
	if err := n.Release(context.Background(), parse(addresses)); err != nil {
		n.cluster.t.Errorf("release: %v", err)
	}
}

func (n *node) confirmed(addresses ...string) []string {
	ctx, cancel := context.WithTimeout(context.Background(), testlab.Patience)
	defer cancel()
	return n.WaitConfirmed(ctx, parse(addresses))
}

// tenant returns the tenant that the node's flows admit the address for.
func (n *node) tenant(address string) string {
	n.mutex.Lock()
	defer n.mutex.Unlock()
	for _, member := range n.flows.Members {
		if member.Prefix.Contains(netip.MustParseAddr(address)) {
			return member.Tenant
		}
	}
	return ""
}

func parse(texts []string) []netip.Addr {
	var addresses []netip.Addr
	for _, text := range texts {
		addresses = append(addresses, netip.MustParseAddr(text))
	}
	return addresses
}

func (n *node) seesTenant(address, tenant string) {
	n.cluster.t.Helper()
	testlab.UntilRight(n.cluster.t, func() string {
		if n.tenant(address) == tenant {
			return ""
		}
		return fmt.Sprintf("%s admits %s for %q, want %q; %v", n.name, address, n.tenant(address), tenant, n.all())
	})
}

func (n *node) hasProblem(want string) {
	n.cluster.t.Helper()
	testlab.UntilRight(n.cluster.t, func() string {
		if slices.ContainsFunc(n.all(), func(problem string) bool { return strings.Contains(problem, want) }) {
			return ""
		}
		return fmt.Sprintf("%s has no problem with %q: %q", n.name, want, n.all())
	})
}

func (n *node) hasNoProblem() {
	n.cluster.t.Helper()
	testlab.UntilRight(n.cluster.t, func() string { return strings.Join(n.all(), "; ") })
}

// recordsOf waits until the folder has the given number of records of a node.
func (c *cluster) recordsOf(name string, count int) {
	c.t.Helper()
	testlab.Eventually(c.t, fmt.Sprintf("%s has %d records", name, count), func() bool {
		found, _ := filepath.Glob(filepath.Join(c.folder, "nodes", name+".*"))
		return len(found) == count
	})
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
