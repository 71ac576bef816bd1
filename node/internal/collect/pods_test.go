package collect

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"railwright/node/internal/attachment"
	"railwright/node/testlab"
)

func newPods(t *testing.T, folders ...string) *Pods {
	t.Helper()
	pods, err := NewPods(folders)
	if err != nil {
		t.Fatal(err)
	}
	return pods
}

func TestPodIsAliveWhileItsNamespaceExists(t *testing.T) {
	pods := newPods(t, "/run/netns", "/proc")
	first, second := testlab.NewNamespace(t, "life-a"), testlab.NewNamespace(t, "life-b")
	inode, err := pods.Identify(first.Path())
	if err != nil {
		t.Fatal(err)
	}
	record := attachment.Attachment{Netns: first.Path(), NetnsInode: inode}
	expect := func(want Life, boot string) {
		t.Helper()
		if life, reason := pods.Life(record, boot); life != want {
			t.Errorf("life %d, want %d: %s", life, want, reason)
		}
	}
	expect(Alive, pods.Boot())
	expect(Gone, "another boot")
	record.Netns = second.Path()
	expect(Gone, pods.Boot())
	record.Netns = "/srv/netns/elsewhere"
	expect(Unknown, pods.Boot())
	record.Netns = first.Path()
	testlab.Run(t, "ip", "netns", "delete", first.Name)
	expect(Gone, pods.Boot())
	if err := os.WriteFile(first.Path(), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.Remove(first.Path()) })
	expect(Gone, pods.Boot())
}

func TestPodsOfAMissingFolderAreUnknown(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "netns")
	pods := newPods(t, folder)
	record := attachment.Attachment{Netns: folder + "/pod", NetnsInode: 5}
	if life, reason := pods.Life(record, pods.Boot()); life != Unknown || !strings.Contains(reason, folder) {
		t.Errorf("life %d: %s", life, reason)
	}
}

func TestIdentifyAcceptsOnlyPodNamespaces(t *testing.T) {
	folder := t.TempDir()
	plain := filepath.Join(folder, "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("/proc/self/ns/net", filepath.Join(folder, "host")); err != nil {
		t.Fatal(err)
	}
	pods := newPods(t, folder, "/proc")
	for path, content := range map[string]string{
		plain:                       "is not a network namespace",
		folder + "/missing":         "no such file",
		folder + "/../etc/passwd":   "netns_folders",
		"/etc/passwd":               "netns_folders",
		"relative":                  "netns_folders",
		folder + "/host":            "the host's",
		"/proc/self/ns/net":         "the host's",
		"/proc/self/ns/mnt":         "",
		folder + "x/" + "elsewhere": "netns_folders",
	} {
		inode, err := pods.Identify(path)
		if err == nil || !strings.Contains(err.Error(), content) {
			t.Errorf("%s: inode %d, %v; want %q", path, inode, err, content)
		}
	}
}
