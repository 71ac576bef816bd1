// Package collect tells whether the pod of an attachment is still there: by its network namespace, which is what an
// attachment lives in. It asks no runtime and no API server, so it can tell when both are away.
package collect

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"railwright/node/internal/attachment"
)

// Life of a pod.
type Life int

// Unknown is neither: nothing may be deleted on its account.
const (
	Unknown Life = iota
	Alive
	Gone
)

// Pods of this node, seen by the folders that runtimes put network namespaces into.
type Pods struct {
	folders   []string
	boot      string
	hostInode uint64
}

// NewPods takes the folders that namespaces' paths may be in.
func NewPods(folders []string) (*Pods, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, fmt.Errorf("the kernel's boot cannot be told: %w", err)
	}
	inode, err := namespaceInode("/proc/self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("the host's network namespace cannot be looked at: %w", err)
	}
	return &Pods{folders, strings.TrimSpace(string(boot)), inode}, nil
}

// Boot names the time since this kernel started.
func (p *Pods) Boot() string { return p.boot }

// Identify the network namespace at a path that a runtime gave: its inode, which no other has while it lives.
func (p *Pods) Identify(path string) (uint64, error) {
	if p.folderOf(path) == "" {
		return 0, fmt.Errorf("the network namespace %.200q is in none of %s; add its folder to netns_folders",
			path, strings.Join(p.folders, ", "))
	}
	inode, err := namespaceInode(path)
	if err != nil {
		return 0, fmt.Errorf("%w; railwrightd must see the host's folder, mounted with HostToContainer", err)
	}
	if inode == p.hostInode {
		return 0, fmt.Errorf("%s is the host's own network namespace; a pod with hostNetwork has no attachment", path)
	}
	return inode, nil
}

// Life of the pod that the attachment was made for, at the boot named, and how that was seen.
func (p *Pods) Life(record attachment.Attachment, boot string) (Life, string) {
	if boot != p.boot {
		return Gone, "the node was started anew"
	}
	folder := p.folderOf(record.Netns)
	if folder == "" {
		return Unknown, fmt.Sprintf("%s is in none of netns_folders", record.Netns)
	}
	if _, err := os.Stat(folder); err != nil {
		return Unknown, fmt.Sprintf("the folder of network namespaces cannot be seen: %v", err)
	}
	inode, err := namespaceInode(record.Netns)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Gone, "its network namespace is gone"
	case errors.Is(err, errNoNamespace):
		return Gone, "its network namespace's path is a plain file now"
	case err != nil:
		return Unknown, err.Error()
	case inode != record.NetnsInode:
		return Gone, "its network namespace's path is another namespace now"
	}
	return Alive, ""
}

func (p *Pods) folderOf(path string) string {
	if filepath.Clean(path) != path {
		return ""
	}
	for _, folder := range p.folders {
		if strings.HasPrefix(path, folder+"/") {
			return folder
		}
	}
	return ""
}

var errNoNamespace = errors.New("is no network namespace")

func namespaceInode(path string) (uint64, error) {
	// O_PATH opens nothing but the name: a fifo or a device there cannot hold us up.
	file, err := os.OpenFile(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("the network namespace cannot be looked at: %w", err)
	}
	defer func() { _ = file.Close() }()
	var system unix.Statfs_t
	if err := unix.Fstatfs(int(file.Fd()), &system); err != nil {
		return 0, fmt.Errorf("the network namespace %s cannot be looked at: %w", path, err)
	}
	if system.Type != unix.NSFS_MAGIC {
		return 0, fmt.Errorf("%s %w", path, errNoNamespace)
	}
	return inodeOfNetwork(path, file)
}

// inodeOfNetwork refuses namespaces of other kinds: of mounts, users and so on.
func inodeOfNetwork(path string, named *os.File) (uint64, error) {
	file, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", named.Fd()))
	if err != nil {
		return 0, fmt.Errorf("the network namespace %s cannot be opened: %w", path, err)
	}
	defer func() { _ = file.Close() }()
	kind, err := unix.IoctlRetInt(int(file.Fd()), unix.NS_GET_NSTYPE)
	if err != nil {
		return 0, fmt.Errorf("the kind of namespace %s cannot be told: %w", path, err)
	}
	if kind != unix.CLONE_NEWNET {
		return 0, fmt.Errorf("%s %w", path, errNoNamespace)
	}
	var status unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &status); err != nil {
		return 0, fmt.Errorf("the network namespace %s cannot be looked at: %w", path, err)
	}
	return status.Ino, nil
}
