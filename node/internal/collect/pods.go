// Package collect finds out whether the pod of an attachment still exists, by its network namespace. It needs no
// runtime and no API server, so it works while both are down.
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

// Life is the state of a pod.
type Life int

// Unknown pods are neither alive nor gone, and nothing may be deleted because of them.
const (
	Unknown Life = iota
	Alive
	Gone
)

// Pods observes this node's pods through the folders of network namespaces.
type Pods struct {
	folders   []string
	boot      string
	hostInode uint64
}

// NewPods returns Pods for the folders that may contain the namespaces' paths.
func NewPods(folders []string) (*Pods, error) {
	boot, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err != nil {
		return nil, fmt.Errorf("read boot ID: %w", err)
	}
	inode, err := namespaceInode("/proc/self/ns/net")
	if err != nil {
		return nil, fmt.Errorf("inspect the host's network namespace: %w", err)
	}
	return &Pods{folders, strings.TrimSpace(string(boot)), inode}, nil
}

// Boot returns the kernel's boot ID.
func (p *Pods) Boot() string { return p.boot }

// Identify returns the inode of the network namespace at a path that a runtime gave. It is unique while the namespace
// exists.
func (p *Pods) Identify(path string) (uint64, error) {
	if p.folderOf(path) == "" {
		return 0, fmt.Errorf("network namespace %.200q must be in %s; add its folder to netns_folders",
			path, strings.Join(p.folders, ", "))
	}
	inode, err := namespaceInode(path)
	if err != nil {
		return 0, fmt.Errorf("%w; check that the host's folder is mounted with HostToContainer", err)
	}
	if inode == p.hostInode {
		return 0, fmt.Errorf("%s is the host's network namespace; a pod with hostNetwork has no attachment", path)
	}
	return inode, nil
}

// Life returns the state of the attachment's pod, and the reason. boot is the boot ID under which the attachment was
// created.
func (p *Pods) Life(record attachment.Attachment, boot string) (Life, string) {
	if boot != p.boot {
		return Gone, "the node was restarted"
	}
	folder := p.folderOf(record.Netns)
	if folder == "" {
		return Unknown, fmt.Sprintf("%s is in none of netns_folders", record.Netns)
	}
	if _, err := os.Stat(folder); err != nil {
		return Unknown, fmt.Sprintf("read folder of network namespaces: %v", err)
	}
	inode, err := namespaceInode(record.Netns)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return Gone, "its network namespace is gone"
	case errors.Is(err, errNoNamespace):
		return Gone, "the path of its network namespace is now a plain file"
	case err != nil:
		return Unknown, err.Error()
	case inode != record.NetnsInode:
		return Gone, "the path of its network namespace is now another namespace"
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

var errNoNamespace = errors.New("is not a network namespace")

func namespaceInode(path string) (uint64, error) {
	// O_PATH opens only the name, so a FIFO or a device cannot block.
	file, err := os.OpenFile(path, unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0, fmt.Errorf("open network namespace: %w", err)
	}
	defer func() { _ = file.Close() }()
	var system unix.Statfs_t
	if err := unix.Fstatfs(int(file.Fd()), &system); err != nil {
		return 0, fmt.Errorf("inspect network namespace %s: %w", path, err)
	}
	if system.Type != unix.NSFS_MAGIC {
		return 0, fmt.Errorf("%s %w", path, errNoNamespace)
	}
	return inodeOfNetwork(path, file)
}

// inodeOfNetwork refuses namespaces of other kinds, such as mount and user namespaces.
func inodeOfNetwork(path string, named *os.File) (uint64, error) {
	file, err := os.Open(fmt.Sprintf("/proc/self/fd/%d", named.Fd()))
	if err != nil {
		return 0, fmt.Errorf("open network namespace %s: %w", path, err)
	}
	defer func() { _ = file.Close() }()
	kind, err := unix.IoctlRetInt(int(file.Fd()), unix.NS_GET_NSTYPE)
	if err != nil {
		return 0, fmt.Errorf("read type of namespace %s: %w", path, err)
	}
	if kind != unix.CLONE_NEWNET {
		return 0, fmt.Errorf("%s %w", path, errNoNamespace)
	}
	var status unix.Stat_t
	if err := unix.Fstat(int(file.Fd()), &status); err != nil {
		return 0, fmt.Errorf("inspect network namespace %s: %w", path, err)
	}
	return status.Ino, nil
}
