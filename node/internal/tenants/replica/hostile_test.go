package replica

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"railwright/node/internal/tenants"
	"railwright/node/internal/tenants/folder"
	"railwright/node/testlab"
)

// TestUnreadableRecordsAreQuarantined checks that addresses in such a record are blocked, that its node confirms
// nothing, and that all others are served. Only a record that is not JSON stops all new addresses, because its content
// is unknown.
func TestUnreadableRecordsAreQuarantined(t *testing.T) {
	t.Parallel()
	text := map[string]bool{"unknown field": true, "another's name": true, "shell in a tenant": true, "a word for an address": true}
	valid := `{"node":"evil","instance":"00000000","generation":1,"revision":1`
	for name, put := range map[string]func(path string) error{
		"garbage":       func(path string) error { return record(path, "\x00\xff{") },
		"unknown field": func(path string) error { return record(path, valid+`,"x":1}`) },
		"trailing data": func(path string) error { return record(path, valid+`}{}`) },
		"another's name": func(path string) error {
			return record(path, strings.Replace(valid, "evil", "good", 1)+`}`)
		},
		"shell in a tenant": func(path string) error {
			return record(path, valid+`,"addresses":[{"address":"10.1.0.7","tenant":"$(reboot)"}]}`)
		},
		"a word for an address": func(path string) error {
			return record(path, valid+`,"addresses":[{"address":"x","tenant":"ns:b"},{"address":"10.1.0.7","tenant":"ns:b"}]}`)
		},
		"too long": func(path string) error { return os.Truncate(touch(path), 64<<20) },
		"a pipe":   func(path string) error { return syscall.Mkfifo(path, 0o600) },
		"a link":   func(path string) error { return os.Symlink("/etc/passwd", path) },
		"a folder": func(path string) error { return os.Mkdir(path, 0o700) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, `{}`)
			peer := c.start("one")
			peer.mustClaim("ns:a", "10.1.0.1")
			path := filepath.Join(c.folder, "nodes", "evil.00000000.json")
			must(t, put(path))
			peer.hasProblem("evil.00000000")
			if text[name] {
				peer.workBesideQuarantine(strings.Contains(name, "a "))
			} else {
				peer.mustRefuse(tenants.ErrUnreachable, "evil", "ns:a", "10.1.0.2") // the record's content is unknown
			}
			peer.seesTenant("10.1.0.1", "ns:a")
			must(t, os.RemoveAll(path))
			peer.mustClaim("ns:a", "10.1.0.2")
			peer.mustClaim("ns:b", "10.1.0.3")
			peer.hasNoProblem()
		})
	}
}

// workBesideQuarantine claims new addresses, except for those in the record. An address of another tenant is reusable
// only once the record's node is declared off.
func (n *node) workBesideQuarantine(names bool) {
	t := n.cluster.t
	if stopped := n.Stopped(); len(stopped) > 0 {
		t.Errorf("single record is a problem for all: %q", stopped)
	}
	n.mustClaim("ns:a", "10.1.0.3")
	n.seesTenant("10.1.0.3", "ns:a")
	if names {
		n.mustRefuse(tenants.ErrTaken, "evil", "ns:b", "10.1.0.7")
	} else {
		n.mustClaim("ns:b", "10.1.0.7")
	}
	n.release("ns:a", "10.1.0.3")
	// The record's node may still admit it for the first tenant.
	n.mustRefuse(tenants.ErrNotReleased, "evil", "ns:b", "10.1.0.3")
}

// record writes a record atomically, as nodes do: readers must not see an empty file, which is a different fault.
func record(path, text string) error {
	temporary := filepath.Join(filepath.Dir(filepath.Dir(path)), ".record")
	return errors.Join(os.WriteFile(temporary, []byte(text), 0o600), os.Rename(temporary, path))
}

func touch(path string) string {
	_ = os.WriteFile(path, nil, 0o600)
	return path
}

func TestUnreadablePolicyKeepsTheLastOne(t *testing.T) {
	t.Parallel()
	c := newCluster(t, `{"tenants":[{"name":"red","namespaces":["a"]}]}`)
	peer := c.start("one")
	if tenant, err := peer.TenantOf(context.Background(), "a"); err != nil || tenant != "red" {
		t.Fatalf("tenant of a: %q, %v", tenant, err)
	}
	for _, text := range []string{
		`{"tenants":[{"name":"red"`, `{"tenants":[{"name":"red","prefixes":["10.1.0.1/16"]}]}`,
		`{"tenants":[{"name":"red","prefixes":["0.0.0.0/0"]}]}`, `{"tenants":[{"name":"ns:a"}]}`,
		`{"tenants":[{"name":"red"},{"name":"red"}]}`, `{"peerings":[{"tenants":["red"]}]}`, `{"tenant":[]}`, `[]`, ``,
	} {
		c.policy(text)
		peer.hasProblem("read tenants (keeping the last ones)")
		if tenant, err := peer.TenantOf(context.Background(), "a"); err != nil || tenant != "red" {
			t.Errorf("%s: tenant of a: %q, %v", text, tenant, err)
		}
	}
	c.policy(`{}`)
	peer.hasNoProblem()
	if tenant, err := peer.TenantOf(context.Background(), "a"); err != nil || tenant != "ns:a" {
		t.Errorf("tenant of a: %q, %v", tenant, err)
	}
	if _, err := peer.TenantOf(context.Background(), "a;reboot"); err == nil {
		t.Error("namespace with a semicolon was accepted")
	}
}

func TestUnmountedFolderIsAnError(t *testing.T) {
	t.Parallel()
	c := &cluster{t: t, folder: t.TempDir()}
	peer := c.start("one")
	peer.hasProblem("mount the shared folder")
	peer.mustRefuse(tenants.ErrUnreachable, "", "ns:a", "10.1.0.1")
	if found, _ := os.ReadDir(c.folder); len(found) > 0 {
		t.Errorf("unexpected files: %v", found)
	}
	c.policy(`{}`)
	peer.mustClaim("ns:a", "10.1.0.1")
}

func TestDamagedStateIsRenamedAndReadBack(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"own.json", "known.json"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := newCluster(t, `{}`)
			peer, two := c.start("one"), c.start("two")
			peer.mustClaim("ns:a", "10.1.0.1")
			two.mustClaim("ns:a", "10.1.0.2")
			peer.seesTenant("10.1.0.2", "ns:a")
			peer.kill()
			path := filepath.Join(peer.state, name)
			content, err := os.ReadFile(path)
			must(t, err)
			content[len(content)/2] ^= 1
			must(t, os.WriteFile(path, content, 0o600))
			peer.boot()
			peer.hasProblem(path + " was damaged and is renamed")
			peer.mustClaim("ns:a", "10.1.0.1")
			peer.seesTenant("10.1.0.2", "ns:a")
			two.mustRefuse(tenants.ErrTaken, "", "ns:b", "10.1.0.1") // one still has it
			if _, err := os.Stat(path + ".damaged"); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestFullDiskRefusesClaimsAndKeepsState(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Skip("a small file system needs root")
	}
	c := newCluster(t, `{}`)
	state := t.TempDir()
	if output, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=64k", "railwright-test", state).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, output)
	}
	t.Cleanup(func() { _ = exec.Command("umount", state).Run() })
	peer := &node{cluster: c, name: "one", state: state, local: map[string]int{}, again: make(chan struct{}, 1)}
	peer.boot()
	t.Cleanup(peer.kill)
	peer.mustClaim("ns:a", "10.1.0.1")
	filler, err := os.Create(filepath.Join(state, "filler"))
	must(t, err)
	last := 1
	// The daemon renews its state meanwhile, which frees a page: fill again and claim another address until one is refused.
	testlab.UntilRight(t, func() string {
		var err error
		for err == nil {
			_, err = filler.Write(make([]byte, 4096))
		}
		last++
		err = peer.claim(3*time.Second, "ns:a", fmt.Sprintf("10.1.0.%d", last))
		if errors.Is(err, tenants.ErrUnreachable) && strings.Contains(err.Error(), "no space left") {
			return ""
		}
		return fmt.Sprintf("claim on a full disk: %v", err)
	})
	must(t, filler.Close())
	peer.hasProblem("cannot write the tenant directory's state")
	must(t, os.Remove(filler.Name()))
	peer.mustClaim("ns:a", fmt.Sprintf("10.1.0.%d", last))
	peer.hasNoProblem()
}

func TestTwoDaemonsWithTheSameName(t *testing.T) {
	t.Parallel()
	c := newCluster(t, `{}`)
	peer := c.start("one")
	peer.mustClaim("ns:a", "10.1.0.1")
	twin := c.start("one") // without state it adopts the record of the first
	twin.mustClaim("ns:a", "10.1.0.2")
	peer.mustClaim("ns:a", "10.1.0.3")
	peer.hasProblem("also has this node's name")
	seen := map[string]bool{}
	snapshot, err := folder.New(c.folder).Read(context.Background())
	must(t, err)
	for id := range snapshot.Records {
		seen[id] = true
	}
	if len(seen) != 2 {
		t.Errorf("records: %v", seen)
	}
	twin.mustRefuse(tenants.ErrTaken, "", "ns:b", "10.1.0.3") // the other daemon has it
}

func TestStateOfAnotherNodeIsRefused(t *testing.T) {
	t.Parallel()
	c := newCluster(t, `{}`)
	peer := c.start("one")
	peer.mustClaim("ns:a", "10.1.0.1")
	peer.kill()
	_, err := Open(context.Background(), Settings{Node: "two", Folder: peer.state, Store: folder.New(c.folder)})
	if err == nil || !strings.Contains(err.Error(), "must be the state of node two, got that of one") {
		t.Errorf("%v", err)
	}
	peer.boot()
}

func TestInvalidClaimsAreRefused(t *testing.T) {
	t.Parallel()
	c := newCluster(t, `{}`)
	peer := c.start("one")
	for _, address := range []string{"127.0.0.1", "224.0.0.1", "fe80::1", "fe80::1%eth0", "::ffff:10.1.0.1", "0.0.0.0"} {
		if err := peer.claim(time.Second, "ns:a", address); err == nil {
			t.Errorf("%s was granted", address)
		}
	}
	for _, tenant := range []string{"", "ns:", "ns:A", "a b", "ns:" + strings.Repeat("a", 64), "red;drop", "ns:a/b"} {
		if err := peer.claim(time.Second, tenant, "10.1.0.1"); err == nil {
			t.Errorf("tenant %q was granted", tenant)
		}
	}
	if err := peer.Claim(context.Background(), tenants.Claim{Tenant: "ns:a", Owner: "x"}); err == nil {
		t.Error("empty claim was granted")
	}
	if fmt.Sprint(peer.all()) != "[]" {
		t.Errorf("%v", peer.all())
	}
}
