package local

import (
	"context"
	"net/netip"
	"os"
	"path/filepath"
	"testing"
	"time"

	"railwright/node/internal/tenants"
	"railwright/node/internal/tenants/replica"
	"railwright/node/testlab"
)

func open(t *testing.T, state, file string) (*replica.Replica, func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	opened, err := replica.Open(ctx, replica.Settings{Node: "one", Folder: state, Store: &Store{File: file}})
	if err != nil {
		t.Fatal(err)
	}
	stop := func() {
		cancel()
		opened.Close()
	}
	t.Cleanup(stop)
	return opened, stop
}

func claim(directory tenants.Directory, tenant, address string) error {
	ctx, cancel := context.WithTimeout(context.Background(), testlab.Patience)
	defer cancel()
	return directory.Claim(ctx, tenants.Claim{Tenant: tenant, Owner: "net/c/" + address, Addresses: []netip.Addr{netip.MustParseAddr(address)}})
}

func TestSingleNode(t *testing.T) {
	state := t.TempDir()
	directory, stop := open(t, state, "")
	if tenant, err := directory.TenantOf(context.Background(), "a"); err != nil || tenant != "ns:a" {
		t.Fatalf("%q, %v", tenant, err)
	}
	for tenant, address := range map[string]string{"ns:a": "10.1.0.1", "ns:b": "10.1.0.2"} {
		if err := claim(directory, tenant, address); err != nil {
			t.Fatal(err)
		}
	}
	view, version, _ := directory.View([]string{"ns:a"})
	if len(view.Members) != 1 || view.Members[0].Prefix.String() != "10.1.0.1/32" || view.Numbers["ns:a"] == 0 {
		t.Errorf("%v", view)
	}
	if err := directory.Confirm(context.Background(), version); err != nil {
		t.Error(err)
	}
	if missing := directory.WaitConfirmed(context.Background(), []netip.Addr{netip.MustParseAddr("10.1.0.1")}); missing != nil {
		t.Errorf("missing %v", missing)
	}
	stop()
	directory, _ = open(t, state, "")
	if err := claim(directory, "ns:a", "10.1.0.1"); err != nil {
		t.Errorf("after a restart: %v", err)
	}
	if err := claim(directory, "ns:b", "10.1.0.3"); err != nil {
		t.Errorf("new claim after a restart: %v", err)
	}
	if problems := directory.Problems(); len(problems) > 0 {
		t.Errorf("%q", problems)
	}
}

func TestChangedFileIsReadAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "tenants.json")
	write := func(text string) {
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(`{"tenants":[{"name":"red","namespaces":["a"]}]}`)
	directory, _ := open(t, t.TempDir(), file)
	becomes := func(want string) {
		t.Helper()
		got := ""
		for end := time.Now().Add(testlab.Patience); got != want; time.Sleep(10 * time.Millisecond) {
			got, _ = directory.TenantOf(context.Background(), "a")
			if time.Now().After(end) {
				t.Fatalf("tenant %q, want %q", got, want)
			}
		}
	}
	becomes("red")
	write(`{"tenants":[`)
	for end := time.Now().Add(testlab.Patience); len(directory.Stopped())+len(directory.Problems()) == 0; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("damaged file is not reported")
		}
	}
	becomes("red")
	write(`{}`)
	becomes("ns:a")
}
