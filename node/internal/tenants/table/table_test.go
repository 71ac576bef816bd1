package table

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"railwright/node/internal/tenants"
	"railwright/node/testlab"
)

func object(name string) tenants.Object {
	return tenants.Object{Kind: tenants.KindMembers, Space: "ns:a", Name: name, Spec: json.RawMessage(`{"addresses":[]}`)}
}

// stores returns a table in memory, and two of a shared folder.
func stores(t *testing.T) map[string][2]*Table {
	t.Helper()
	memory, err := New("", nil)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "tenants.json"), []byte(`{"tenants": [{"name": "red"}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	var shared [2]*Table
	for i := range shared {
		if shared[i], err = Open(folder); err != nil {
			t.Fatal(err)
		}
	}
	return map[string][2]*Table{"memory": {memory, memory}, "folder": shared}
}

func TestWritesHavePreconditions(t *testing.T) {
	for name, pair := range stores(t) {
		t.Run(name, func(t *testing.T) {
			ctx := t.Context()
			made, err := pair[0].Create(ctx, object("n1"))
			if err != nil || made.UID == "" || made.Version == 0 {
				t.Fatal(made, err)
			}
			if _, err := pair[1].Create(ctx, object("n1")); !errors.Is(err, tenants.ErrExists) {
				t.Errorf("second creation: %v", err)
			}
			if same, err := pair[1].Update(ctx, made); err != nil || same.Version != made.Version {
				t.Errorf("update without a change: %v, %v", same, err)
			}
			other := made
			other.Spec = tenants.Merge(made.Spec, map[string]string{"epoch": "other"})
			changed, err := pair[1].Update(ctx, other)
			if err != nil || changed.Version <= made.Version || changed.UID != made.UID {
				t.Fatal(changed, err)
			}
			if _, err := pair[0].Update(ctx, made); !errors.Is(err, tenants.ErrConflict) {
				t.Errorf("update of an old version: %v", err)
			}
			if err := pair[0].Delete(ctx, made); !errors.Is(err, tenants.ErrConflict) {
				t.Errorf("deletion of an old version: %v", err)
			}
			if got, err := pair[0].Get(ctx, tenants.KindMembers, "ns:a", "n1"); err != nil || got.Version != changed.Version {
				t.Errorf("%+v, %v", got, err)
			}
			if list, err := pair[0].List(ctx, tenants.KindMembers, "ns:b"); err != nil || len(list.Objects) != 0 || list.Version != changed.Version {
				t.Errorf("another space: %+v, %v", list, err)
			}
			if err := pair[0].Delete(ctx, changed); err != nil {
				t.Fatal(err)
			}
			again := changed
			if _, err := pair[1].Update(ctx, again); !errors.Is(err, tenants.ErrGone) {
				t.Errorf("update of what is gone: %v", err)
			}
			if err := pair[1].Delete(ctx, again); !errors.Is(err, tenants.ErrGone) {
				t.Errorf("deletion of what is gone: %v", err)
			}
		})
	}
}

func TestAWatchHearsEveryLaterChangeOfItsSpaceAlone(t *testing.T) {
	for name, pair := range stores(t) {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), testlab.Patience)
			defer cancel()
			if _, err := pair[0].Create(ctx, object("before")); err != nil {
				t.Fatal(err)
			}
			list, err := pair[1].List(ctx, tenants.KindMembers, "ns:a")
			if err != nil {
				t.Fatal(err)
			}
			heard := make(chan tenants.Event, 10)
			go func() {
				_ = pair[1].Watch(ctx, tenants.KindMembers, "ns:a", list.Version, func(event tenants.Event) { heard <- event })
			}()
			other := object("elsewhere")
			other.Space = "ns:b"
			if _, err := pair[0].Create(ctx, other); err != nil {
				t.Fatal(err)
			}
			made, err := pair[0].Create(ctx, object("n1"))
			if err != nil {
				t.Fatal(err)
			}
			next := func() tenants.Event {
				select {
				case event := <-heard:
					return event
				case <-ctx.Done():
					t.Fatal("nothing is heard")
					return tenants.Event{}
				}
			}
			if event := next(); event.Object.Name != "n1" || event.Deleted || event.Object.Version != made.Version {
				t.Errorf("%+v", event)
			}
			if err := pair[0].Delete(ctx, made); err != nil {
				t.Fatal(err)
			}
			if event := next(); event.Object.Name != "n1" || !event.Deleted || event.Object.Version <= made.Version {
				t.Errorf("%+v", event)
			}
		})
	}
}

func TestABackupHasEverything(t *testing.T) {
	before := stores(t)["memory"][0]
	made, err := before.Create(t.Context(), object("n1"))
	if err != nil {
		t.Fatal(err)
	}
	after, err := New("", before.Backup())
	if err != nil {
		t.Fatal(err)
	}
	list, err := after.List(t.Context(), tenants.KindMembers, "ns:a")
	if err != nil || len(list.Objects) != 1 || list.Objects[0].UID != made.UID || list.Version != made.Version {
		t.Errorf("%+v, %v", list, err)
	}
}

func TestAFolderThatIsNotMountedIsNoEmptyCluster(t *testing.T) {
	lost, err := Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lost.List(t.Context(), tenants.KindNode, ""); err == nil {
		t.Error("a folder without tenants.json is listed")
	}
}

func TestThePolicyFollowsItsFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "tenants.json")
	made, err := New(path, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), testlab.Patience)
	defer cancel()
	lines := make(chan string, 100)
	go made.WatchPolicy(ctx, func(policy tenants.Policy) {
		lines <- policy.Tenants[0].Name
	}, func(err error) {
		select {
		case lines <- "lost":
		default:
		}
	})
	var got []string
	hear := func(want string) {
		for ctx.Err() == nil {
			select {
			case line := <-lines:
				if len(got) == 0 || got[len(got)-1] != line {
					got = append(got, line)
				}
				if line == want {
					return
				}
			case <-time.After(testlab.Patience):
			}
		}
	}
	hear("lost")
	for _, name := range []string{"red", "blue"} {
		if err := os.WriteFile(path+".new", []byte(`{"tenants": [{"name": "`+name+`"}]}`), 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path+".new", path); err != nil {
			t.Fatal(err)
		}
		hear(name)
	}
	if !slices.Equal(got, []string{"lost", "red", "blue"}) {
		t.Errorf("heard %q", got)
	}
}
