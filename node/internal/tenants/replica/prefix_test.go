package replica

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"railwright/node/internal/tenants"
)

const twoPrefixes = `{"tenants":[{"name":"red","namespaces":["a"],"prefixes":["10.1.0.0/16","fd00:1::/64"]},
	{"name":"blue","namespaces":["b"],"prefixes":["10.2.0.0/16"]}],"peerings":[{"tenants":["red","ns:c"]}]}`

func TestPrefixesOfATenantStandForItsAddresses(t *testing.T) {
	t.Parallel()
	c := newCluster(t, twoPrefixes)
	one, two, three := c.start("one"), c.start("two"), c.start("three")
	tenant, err := one.TenantOf(context.Background(), "a")
	if err != nil || tenant != "red" {
		t.Fatalf("tenant of a: %q, %v", tenant, err)
	}
	must(t, one.claim(5*time.Second, "red", "10.1.0.1", "fd00:1::1"))
	must(t, two.claim(5*time.Second, "red", "10.1.0.2"))
	must(t, three.claim(5*time.Second, "ns:c", "10.3.0.1"))
	if missing := one.confirmed(time.Second, "10.1.0.1"); len(missing) > 0 {
		t.Errorf("an address that a prefix covers waits for %v", missing)
	}
	one.seesTenant("10.1.77.7", "red")
	two.seesTenant("fd00:1::1", "red")
	one.seesTenant("10.3.0.1", "ns:c")
	three.seesTenant("10.1.0.2", "red") // a peer
	if files, _ := filepath.Glob(filepath.Join(c.folder, "nodes", "one.*")); len(files) != 1 {
		t.Errorf("records of one: %v", files)
	} else if content, _ := os.ReadFile(files[0]); strings.Contains(string(content), "10.1.0.1") {
		t.Errorf("addresses of the prefix were published: %s", content)
	}
	for address, reason := range map[string]error{"10.9.0.1": tenants.ErrOutside, "10.2.0.1": tenants.ErrTaken} {
		if err := one.claim(time.Second, "red", address); !errors.Is(err, reason) {
			t.Errorf("%s for red: %v", address, err)
		}
	}
	if err := three.claim(time.Second, "ns:c", "10.1.0.9"); !errors.Is(err, tenants.ErrTaken) ||
		!strings.Contains(err.Error(), "10.1.0.9 lies in a prefix of tenant red") {
		t.Errorf("a stranger in red's prefix: %v", err)
	}
}

func TestOverlapOfTwoTenantsIsNeithers(t *testing.T) {
	t.Parallel()
	c := newCluster(t, `{"tenants":[{"name":"red","prefixes":["10.1.0.0/16"]},{"name":"blue","prefixes":["10.1.128.0/17"]}]}`)
	one, two := c.start("one"), c.start("two")
	must(t, one.claim(5*time.Second, "red", "10.1.0.1"))
	one.hasProblem("10.1.128.0/17 of tenant blue lies in 10.1.0.0/16 of tenant red: it is neither's")
	one.seesTenant("10.1.0.200", "red")
	one.seesTenant("10.1.128.1", "")
	for _, n := range []*node{one, two} {
		for _, tenant := range []string{"red", "blue"} {
			if err := n.claim(time.Second, tenant, "10.1.128.1"); !errors.Is(err, tenants.ErrTaken) {
				t.Errorf("%s for %s: %v", n.name, tenant, err)
			}
		}
	}
}

func TestPrefixMovesToAnotherTenantOnceThePodsOfTheFirstHaveEnded(t *testing.T) {
	t.Parallel()
	c := newCluster(t, `{"tenants":[{"name":"red","prefixes":["10.1.0.0/16"]},{"name":"blue"}]}`)
	one, two := c.start("one"), c.start("two")
	must(t, one.claim(5*time.Second, "red", "10.1.0.1"))
	one.seesTenant("10.1.0.1", "red")
	c.policy(`{"tenants":[{"name":"red"},{"name":"blue","prefixes":["10.1.0.0/16"]}]}`)
	one.seesTenant("10.1.0.1", "")
	one.hasProblem("10.1.0.1 of net/one/10.1.0.1 is let in nowhere")
	err := two.claim(3*time.Second, "blue", "10.1.0.2")
	if !errors.Is(err, tenants.ErrTaken) || !strings.Contains(err.Error(), "which node one uses for tenant red") {
		t.Fatalf("while a pod of red runs in it: %v", err)
	}
	one.release("red", "10.1.0.1")
	eventually(t, 10*time.Second, func() string { return "blue does not get it" },
		func() bool { return two.claim(2*time.Second, "blue", "10.1.0.2") == nil })
	two.seesTenant("10.1.0.1", "blue")
	one.seesTenant("10.1.0.1", "")
}

func TestPrefixSurvivesARestartWithoutTheDirectory(t *testing.T) {
	t.Parallel()
	c := newCluster(t, twoPrefixes)
	one, two := c.start("one"), c.start("two")
	must(t, one.claim(5*time.Second, "red", "10.1.0.1"))
	must(t, two.claim(5*time.Second, "red", "10.1.0.2"))
	one.seesTenant("10.1.0.2", "red")
	must(t, os.Rename(c.folder, c.folder+".away"))
	must(t, one.claim(time.Second, "red", "10.1.0.3")) // proven already: needs nobody
	if err := one.claim(6*time.Second, "blue", "10.2.0.1"); !errors.Is(err, tenants.ErrUnreachable) {
		t.Errorf("a tenant that is new here: %v", err)
	}
	one.kill()
	one.boot()
	must(t, one.claim(3*time.Second, "red", "10.1.0.1"))
	must(t, one.claim(3*time.Second, "red", "10.1.0.3"))
	one.seesTenant("10.1.0.2", "red")
	if err := one.claim(6*time.Second, "red", "10.1.0.4"); !errors.Is(err, tenants.ErrUnreachable) {
		t.Errorf("a new address, by a daemon that has not reached the directory since its start: %v", err)
	}
	must(t, os.Rename(c.folder+".away", c.folder))
	must(t, one.claim(15*time.Second, "red", "10.1.0.4"))
}
