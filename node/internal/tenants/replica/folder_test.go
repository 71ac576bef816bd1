package replica

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"railwright/node/internal/tenants"
	"railwright/node/internal/tenants/folder"
)

func TestAddressIsLetInOnAllNodesOfItsTenant(t *testing.T) {
	t.Parallel()
	c := newCluster(t, `{}`)
	one, two, three := c.start("one"), c.start("two"), c.start("three")
	must(t, two.claim(5*time.Second, "ns:a", "10.1.0.2"))
	must(t, three.claim(5*time.Second, "ns:b", "10.1.0.3"))
	must(t, one.claim(5*time.Second, "ns:a", "10.1.0.1", "fd00::1"))
	if missing := one.confirmed(5*time.Second, "10.1.0.1", "fd00::1"); len(missing) > 0 {
		t.Fatalf("not confirmed by %v", missing)
	}
	for _, address := range []string{"10.1.0.1", "fd00::1", "10.1.0.2"} {
		one.seesTenant(address, "ns:a")
		two.seesTenant(address, "ns:a")
		three.seesTenant(address, "") // another tenant's node needs to know nothing of it
	}
	if again := one.claim(time.Second, "ns:a", "10.1.0.1", "fd00::1"); again != nil {
		t.Errorf("the same claim again: %v", again)
	}
}

func TestNodeWithoutPodsIsKnownAndConfirms(t *testing.T) {
	t.Parallel()
	c := newCluster(t, `{}`)
	one, two := c.start("one"), c.start("two")
	eventually(t, 5*time.Second, func() string { return "two has no record" }, func() bool {
		found, _ := filepath.Glob(filepath.Join(c.folder, "nodes", "two.*"))
		return len(found) == 1
	})
	two.change(func() { two.local["ns:a"]++ })
	must(t, one.claim(5*time.Second, "ns:a", "10.1.0.1"))
	two.seesTenant("10.1.0.1", "ns:a")
	one.release("ns:a", "10.1.0.1")
	must(t, one.claim(10*time.Second, "ns:b", "10.1.0.1"))
	two.seesTenant("10.1.0.1", "")
}

func TestAddressOfAnotherAttachmentIsTaken(t *testing.T) {
	t.Parallel()
	c := newCluster(t, `{}`)
	one, two := c.start("one"), c.start("two")
	must(t, one.claim(5*time.Second, "ns:a", "10.1.0.1"))
	for _, tenant := range []string{"ns:a", "ns:b"} {
		err := two.claim(5*time.Second, tenant, "10.1.0.1")
		if !errors.Is(err, tenants.ErrTaken) || !strings.Contains(err.Error(), "10.1.0.1 is held by tenant ns:a on node one") {
			t.Errorf("%s: %v", tenant, err)
		}
	}
	err := one.Claim(context.Background(), tenants.Claim{Tenant: "ns:a", Owner: "another", Addresses: parse([]string{"10.1.0.1"})})
	if !errors.Is(err, tenants.ErrTaken) {
		t.Errorf("another owner on the same node: %v", err)
	}
	one.seesTenant("10.1.0.1", "ns:a")
}

func TestReleasedAddressGoesToItsTenantAtOnceAndToAnotherOnceAllLetGo(t *testing.T) {
	t.Parallel()
	c := newCluster(t, `{}`)
	one, two, three := c.start("one"), c.start("two"), c.start("three")
	must(t, one.claim(5*time.Second, "ns:a", "10.1.0.1"))
	must(t, three.claim(5*time.Second, "ns:a", "10.1.0.3"))
	three.seesTenant("10.1.0.1", "ns:a")
	three.freeze(true)
	one.release("ns:a", "10.1.0.1")
	must(t, two.claim(5*time.Second, "ns:a", "10.1.0.1"))
	two.release("ns:a", "10.1.0.1")
	err := two.claim(3*time.Second, "ns:b", "10.1.0.1")
	if !errors.Is(err, tenants.ErrNotReleased) || !strings.Contains(err.Error(), "10.1.0.1 of tenant ns:a, on three") {
		t.Fatalf("while three still lets ns:a in: %v", err)
	}
	three.freeze(false)
	must(t, two.claim(5*time.Second, "ns:b", "10.1.0.1"))
	two.seesTenant("10.1.0.1", "ns:b")
	three.seesTenant("10.1.0.1", "")
}

func TestOfManyThatAskAtOnceOneGetsTheAddress(t *testing.T) {
	t.Parallel()
	c := newCluster(t, `{}`)
	nodes := []*node{c.start("one"), c.start("two"), c.start("three")}
	type answer struct {
		address string
		node    int
		err     error
	}
	answers := make(chan answer, 60)
	for round := range 20 {
		for i, n := range nodes {
			address := fmt.Sprintf("10.1.%d.1", round)
			go func() { answers <- answer{address, i, n.claim(8*time.Second, fmt.Sprintf("ns:t%d", i), address)} }()
		}
	}
	winners := map[string]int{}
	for range 60 {
		got := <-answers
		if got.err != nil && !errors.Is(got.err, tenants.ErrTaken) && !errors.Is(got.err, tenants.ErrNotReleased) {
			t.Fatalf("%s for %s: %v", nodes[got.node].name, got.address, got.err)
		}
		if got.err != nil {
			continue
		}
		if other, twice := winners[got.address]; twice {
			t.Fatalf("%s went to both %s and %s", got.address, nodes[other].name, nodes[got.node].name)
		}
		winners[got.address] = got.node
	}
	for address, winner := range winners {
		nodes[winner].seesTenant(address, fmt.Sprintf("ns:t%d", winner))
	}
	if len(winners) < 15 {
		t.Errorf("of 20 addresses that three asked for only %d went to anybody", len(winners))
	}
}

func TestNodeThatIsCutOffKeepsWhatItKnewAndGetsNothingNew(t *testing.T) {
	t.Parallel()
	c := newCluster(t, `{}`)
	one, two := c.start("one"), c.start("two")
	must(t, one.claim(5*time.Second, "ns:a", "10.1.0.1"))
	must(t, two.claim(5*time.Second, "ns:a", "10.1.0.2"))
	two.seesTenant("10.1.0.1", "ns:a")
	one.seesTenant("10.1.0.2", "ns:a")
	eventually(t, 5*time.Second, func() string { return "two has not stored it" }, func() bool {
		content, _ := os.ReadFile(filepath.Join(two.state, "known.json"))
		return strings.Contains(string(content), "10.1.0.1")
	})
	must(t, os.Rename(c.folder, c.folder+".away"))
	two.hasProblem("cannot be reached since")
	// Refused while the caller still has time: it could try elsewhere.
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	err := two.Claim(ctx, tenants.Claim{Tenant: "ns:a", Rail: "rail0", Owner: "net/two/10.1.0.3", Addresses: parse([]string{"10.1.0.3"})})
	if !errors.Is(err, tenants.ErrUnreachable) || ctx.Err() != nil {
		t.Errorf("a new address: %v, %v", err, ctx.Err())
	}
	two.seesTenant("10.1.0.1", "ns:a")
	two.kill()
	two.boot()
	must(t, two.claim(time.Second, "ns:a", "10.1.0.2"))
	two.seesTenant("10.1.0.1", "ns:a")
	two.seesTenant("10.1.0.2", "ns:a")
	must(t, os.Rename(c.folder+".away", c.folder))
	must(t, two.claim(15*time.Second, "ns:a", "10.1.0.3"))
	two.hasNoProblem()
	one.seesTenant("10.1.0.3", "ns:a")
}

func TestAddressesOfANodeThatIsOffAreFreeOnceItIsForgotten(t *testing.T) {
	t.Parallel()
	c := newCluster(t, `{}`)
	one, two, three := c.start("one"), c.start("two"), c.start("three")
	must(t, one.claim(5*time.Second, "ns:a", "10.1.0.1"))
	must(t, two.claim(5*time.Second, "ns:a", "10.1.0.2"))
	must(t, three.claim(5*time.Second, "ns:a", "10.1.0.3"))
	two.seesTenant("10.1.0.1", "ns:a")
	one.kill()
	if err := two.claim(2*time.Second, "ns:b", "10.1.0.1"); !errors.Is(err, tenants.ErrTaken) {
		t.Fatalf("of a node that may still run: %v", err)
	}
	records, err := folder.Forget(c.folder, "one")
	if err != nil || records != 1 {
		t.Fatalf("%d, %v", records, err)
	}
	must(t, two.claim(10*time.Second, "ns:b", "10.1.0.1"))
	three.seesTenant("10.1.0.1", "")
	eventually(t, 15*time.Second, func() string { return "its record is still there" }, func() bool {
		found, _ := filepath.Glob(filepath.Join(c.folder, "nodes", "one.*"))
		return len(found) == 0
	})
	// Come back, it is a new node: what it had is another's now.
	one.boot()
	if err := one.claim(5*time.Second, "ns:a", "10.1.0.1"); !errors.Is(err, tenants.ErrTaken) {
		t.Errorf("come back: %v", err)
	}
	must(t, one.claim(5*time.Second, "ns:a", "10.1.0.9"))
	three.seesTenant("10.1.0.9", "ns:a")
}

func TestRecordTakenAwayFromALivingNode(t *testing.T) {
	t.Parallel()
	c := newCluster(t, `{}`)
	one, two := c.start("one"), c.start("two")
	must(t, one.claim(5*time.Second, "ns:a", "10.1.0.1"))
	must(t, two.claim(5*time.Second, "ns:a", "10.1.0.2"))
	two.seesTenant("10.1.0.1", "ns:a")
	found, err := filepath.Glob(filepath.Join(c.folder, "nodes", "one.*"))
	if err != nil || len(found) != 1 {
		t.Fatal(found, err)
	}
	must(t, os.Remove(found[0]))
	two.seesTenant("10.1.0.1", "")
	// It notices as soon as it has something to say, and proves anew what it has.
	must(t, one.claim(10*time.Second, "ns:a", "10.1.0.5"))
	two.seesTenant("10.1.0.1", "ns:a")
	one.hasNoProblem()
	two.hasNoProblem()
}

func TestClaimsOfLostAttachmentsAreReleased(t *testing.T) {
	t.Parallel()
	c := newCluster(t, `{}`)
	one, two := c.start("one"), c.start("two")
	must(t, one.claim(5*time.Second, "ns:a", "10.1.0.1"))
	must(t, one.claim(5*time.Second, "ns:a", "10.1.0.9"))
	one.kill()
	must(t, os.RemoveAll(one.state))
	one.boot()
	must(t, one.claim(5*time.Second, "ns:a", "10.1.0.1")) // taken over from what it had published
	must(t, one.Retain(context.Background(), []string{"net/one/10.1.0.1"}))
	must(t, two.claim(5*time.Second, "ns:b", "10.1.0.9"))
	if err := two.claim(3*time.Second, "ns:b", "10.1.0.1"); !errors.Is(err, tenants.ErrTaken) {
		t.Errorf("what was retained: %v", err)
	}
	found, _ := filepath.Glob(filepath.Join(c.folder, "nodes", "one.*"))
	if len(found) != 1 {
		t.Errorf("records of one: %v", found)
	}
}

func TestTimesFromClaimToConfirmed(t *testing.T) {
	c := newCluster(t, `{}`)
	nodes := []*node{c.start("one"), c.start("two"), c.start("three")}
	for i, n := range nodes {
		must(t, n.claim(5*time.Second, "ns:a", fmt.Sprintf("10.1.1.%d", i+1)))
	}
	var claims, all []time.Duration
	for i := range 60 {
		n, address := nodes[i%3], fmt.Sprintf("10.2.0.%d", i+1)
		began := time.Now()
		must(t, n.claim(5*time.Second, "ns:a", address))
		claims = append(claims, time.Since(began))
		if missing := n.confirmed(5*time.Second, address); len(missing) > 0 {
			t.Fatalf("not confirmed by %v", missing)
		}
		all = append(all, time.Since(began))
	}
	slices.Sort(claims)
	slices.Sort(all)
	t.Logf("3 nodes, folder, 60 claims one after the other: Claim p50 %s p99 %s; until confirmed by both others p50 %s p99 %s",
		claims[30], claims[59], all[30], all[59])
}
