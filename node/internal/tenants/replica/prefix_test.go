package replica

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"railwright/node/internal/tenants"
)

const twoPrefixes = `{"tenants":[{"name":"red","namespaces":["a"],"prefixes":["10.1.0.0/16","fd00:1::/64"]},
	{"name":"blue","namespaces":["b"],"prefixes":["10.2.0.0/16"]}],"peerings":[{"tenants":["red","ns:c"]}]}`

func TestPrefixesOfATenantReplaceItsAddresses(t *testing.T) {
	t.Parallel()
	c := newCluster(t, twoPrefixes)
	peer, two, three := c.start("one"), c.start("two"), c.start("three")
	tenant, err := peer.TenantOf(context.Background(), "a")
	if err != nil || tenant != "red" {
		t.Fatalf("tenant of a: %q, %v", tenant, err)
	}
	peer.mustClaim("red", "10.1.0.1", "fd00:1::1")
	two.mustClaim("red", "10.1.0.2")
	three.mustClaim("ns:c", "10.3.0.1")
	if missing := peer.confirmed("10.1.0.1"); len(missing) > 0 {
		t.Errorf("address within a prefix waits for %v", missing)
	}
	peer.seesTenant("10.1.77.7", "red")
	two.seesTenant("fd00:1::1", "red")
	peer.seesTenant("10.3.0.1", "ns:c")
	three.seesTenant("10.1.0.2", "red") // a peer
	if files, _ := filepath.Glob(filepath.Join(c.folder, "nodes", "one.*")); len(files) != 1 {
		t.Errorf("records of one: %v", files)
	} else if content, _ := os.ReadFile(files[0]); strings.Contains(string(content), "10.1.0.1") {
		t.Errorf("addresses of the prefix were published: %s", content)
	}
	for address, reason := range map[string]error{"10.9.0.1": tenants.ErrOutside, "10.2.0.1": tenants.ErrTaken} {
		peer.mustRefuse(reason, "", "red", address)
	}
	three.mustRefuse(tenants.ErrTaken, "10.1.0.9 is in a prefix of tenant red", "ns:c", "10.1.0.9")
}

func TestOverlapOfTwoTenantsBelongsToNeither(t *testing.T) {
	t.Parallel()
	c := newCluster(t, `{"tenants":[{"name":"red","prefixes":["10.1.0.0/16"]},{"name":"blue","prefixes":["10.1.128.0/17"]}]}`)
	peer, two := c.start("one"), c.start("two")
	peer.mustClaim("red", "10.1.0.1")
	peer.hasProblem("10.1.128.0/17 of tenant blue is in 10.1.0.0/16 of tenant red; it belongs to neither")
	peer.seesTenant("10.1.0.200", "red")
	peer.seesTenant("10.1.128.1", "")
	for _, n := range []*node{peer, two} {
		for _, tenant := range []string{"red", "blue"} {
			n.mustRefuse(tenants.ErrTaken, "", tenant, "10.1.128.1")
		}
	}
}

func TestPrefixMovesToAnotherTenantAfterTheLastPod(t *testing.T) {
	t.Parallel()
	c := newCluster(t, `{"tenants":[{"name":"red","prefixes":["10.1.0.0/16"]},{"name":"blue"}]}`)
	peer, two := c.start("one"), c.start("two")
	peer.mustClaim("red", "10.1.0.1")
	peer.seesTenant("10.1.0.1", "red")
	c.policy(`{"tenants":[{"name":"red"},{"name":"blue","prefixes":["10.1.0.0/16"]}]}`)
	peer.seesTenant("10.1.0.1", "")
	peer.hasProblem("10.1.0.1 of net/one/10.1.0.1 is not admitted")
	two.mustRefuse(tenants.ErrTaken, "which node one uses for tenant red", "blue", "10.1.0.2") // a pod of red still runs in it
	peer.release("red", "10.1.0.1")
	two.mustClaim("blue", "10.1.0.2")
	two.seesTenant("10.1.0.1", "blue")
	peer.seesTenant("10.1.0.1", "")
}

func TestPrefixSurvivesARestartWithoutTheDirectory(t *testing.T) {
	t.Parallel()
	c := newCluster(t, twoPrefixes)
	peer, two := c.start("one"), c.start("two")
	peer.mustClaim("red", "10.1.0.1")
	two.mustClaim("red", "10.1.0.2")
	peer.seesTenant("10.1.0.2", "red")
	must(t, os.Rename(c.folder, c.folder+".away"))
	peer.mustClaim("red", "10.1.0.3")                               // already proven without the other nodes
	peer.mustRefuse(tenants.ErrUnreachable, "", "blue", "10.2.0.1") // a tenant without pods here so far
	peer.kill()
	peer.boot()
	peer.mustClaim("red", "10.1.0.1")
	peer.mustClaim("red", "10.1.0.3")
	peer.seesTenant("10.1.0.2", "red")
	// A new address needs the directory, which the daemon has not reached since its start.
	peer.mustRefuse(tenants.ErrUnreachable, "", "red", "10.1.0.4")
	must(t, os.Rename(c.folder+".away", c.folder))
	peer.mustClaim("red", "10.1.0.4")
}

// TestReservedAddressOfAPrefixIsBlocked checks that a reserved address, to which a leaf may still have a route, is
// blocked while the rest of the prefix is usable, and free after its release, also after a restart in between.
func TestReservedAddressOfAPrefixIsBlocked(t *testing.T) {
	t.Parallel()
	c := newCluster(t, twoPrefixes)
	peer, two := c.start("one"), c.start("two")
	peer.mustClaim("red", "10.1.0.1", "fd00:1::1")
	two.mustClaim("red", "10.1.0.2")
	if err := peer.Hold(t.Context(), []netip.Addr{netip.MustParseAddr("10.1.0.1"), netip.MustParseAddr("fd00:1::1")}); err != nil {
		t.Fatal(err)
	}
	for _, address := range []string{"10.1.0.1", "fd00:1::1"} {
		two.mustRefuse(tenants.ErrTaken, address+" belongs to tenant red on node one", "red", address)
	}
	two.mustClaim("red", "10.1.0.3")
	two.seesTenant("10.1.0.1", "red")
	peer.kill()
	peer.boot()
	two.mustRefuse(tenants.ErrTaken, "belongs to tenant red on node one", "red", "10.1.0.1")
	peer.release("red", "10.1.0.1", "fd00:1::1")
	two.mustClaim("red", "10.1.0.1")
}
