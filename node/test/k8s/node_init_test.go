//go:build k8s

package k8s

import (
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// nodeMounts describes the file system that the first process of a node mounts.
type nodeMounts struct {
	// Folder holds all files that the node writes.
	Folder string `json:"folder"`
	// Kept are folders of the machine that the node needs, even if they are below /tmp, which the node replaces.
	Kept []string `json:"kept"`
	// Binds maps paths inside the node to folders of the machine.
	Binds map[string]string `json:"binds"`
	// Ready is a file that is created once everything is mounted.
	Ready string `json:"ready"`
}

// shownSettings are kernel settings that kubelet requires. The node sees files with these values instead, because a
// test must not change the machine's settings.
var shownSettings = map[string]string{"vm/overcommit_memory": "1", "kernel/panic": "10", "kernel/panic_on_oops": "1"}

// runNodeInit is the first process of a node. It mounts a private file system, so that the node's writes do not reach
// the machine, and then reaps orphans. All processes of the node end with it. It returns only on errors.
func runNodeInit(description string) error {
	var mounts nodeMounts
	if err := json.Unmarshal([]byte(description), &mounts); err != nil {
		return fmt.Errorf("node: %w", err)
	}
	for _, step := range []func(nodeMounts) error{mountPrivately, mountProcAndSys, mountBinds, showSettings, mountTemporary} {
		if err := step(mounts); err != nil {
			return fmt.Errorf("node: %w", err)
		}
	}
	// Mounts of kubelet and plugins must propagate to containers.
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_SHARED, ""); err != nil {
		return fmt.Errorf("node: share mounts: %w", err)
	}
	if err := os.WriteFile(mounts.Ready, nil, 0o600); err != nil {
		return fmt.Errorf("node: %w", err)
	}
	children := make(chan os.Signal, 1)
	signal.Notify(children, unix.SIGCHLD)
	for range children {
		for pid := 1; pid > 0; {
			pid, _ = unix.Wait4(-1, nil, unix.WNOHANG, nil)
		}
	}
	return nil
}

// mountPrivately mounts overlays over the folders that containerd, kubelet and plugins write to. The machine's folders
// stay unchanged, and no mount points need to be created in them.
func mountPrivately(mounts nodeMounts) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	for _, folder := range []string{"/etc", "/opt", "/usr", "/var"} {
		upper, work := mounts.Folder+"/written"+folder, mounts.Folder+"/work"+folder
		if err := makeFolders(upper, work); err != nil {
			return err
		}
		options := fmt.Sprintf("lowerdir=%s,upperdir=%s,workdir=%s", folder, upper, work)
		if err := unix.Mount("overlay", folder, "overlay", 0, options); err != nil {
			return fmt.Errorf("mount an overlay on %s: %w", folder, err)
		}
	}
	for _, folder := range []string{"/run", "/mnt"} {
		if err := unix.Mount("tmpfs", folder, "tmpfs", 0, "mode=755"); err != nil {
			return fmt.Errorf("mount a tmpfs on %s: %w", folder, err)
		}
	}
	// An overlay cannot hold the containers' layers, because overlays cannot be nested.
	return bind(mounts.Folder+"/layers", "/var/lib/containerd")
}

// mountProcAndSys mounts /proc and /sys of this process and network namespace, with the machine's cgroups.
func mountProcAndSys(nodeMounts) error {
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	if err := unix.Mount("/sys/fs/cgroup", "/mnt", "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("keep the cgroups: %w", err)
	}
	if err := unix.Mount("sysfs", "/sys", "sysfs", 0, ""); err != nil {
		return fmt.Errorf("mount /sys: %w", err)
	}
	if err := unix.Mount("/mnt", "/sys/fs/cgroup", "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return fmt.Errorf("give the cgroups back: %w", err)
	}
	return unix.Unmount("/mnt", unix.MNT_DETACH)
}

func mountBinds(mounts nodeMounts) error {
	for seen, outside := range mounts.Binds {
		if err := bind(outside, seen); err != nil {
			return err
		}
	}
	return nil
}

func showSettings(mounts nodeMounts) error {
	for name, value := range shownSettings {
		shown := filepath.Join(mounts.Folder, "setting-"+filepath.Base(name))
		if err := os.WriteFile(shown, []byte(value+"\n"), 0o644); err != nil {
			return err
		}
		if err := unix.Mount(shown, "/proc/sys/"+name, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("show %s: %w", name, err)
		}
	}
	return nil
}

// mountTemporary mounts a private /tmp, because plugins keep files there. It binds the folders that the node needs from
// the machine's /tmp at their old paths.
func mountTemporary(mounts nodeMounts) error {
	kept := map[string]string{}
	for number, folder := range mounts.Kept {
		if strings.HasPrefix(folder, "/tmp/") {
			aside := fmt.Sprintf("/mnt/%d", number)
			if err := bind(folder, aside); err != nil {
				return err
			}
			kept[folder] = aside
		}
	}
	if err := unix.Mount("tmpfs", "/tmp", "tmpfs", 0, "mode=1777"); err != nil {
		return fmt.Errorf("mount a tmpfs on /tmp: %w", err)
	}
	for folder, aside := range kept {
		if err := makeFolders(folder); err != nil {
			return err
		}
		if err := unix.Mount(aside, folder, "", unix.MS_MOVE, ""); err != nil {
			return fmt.Errorf("give %s back: %w", folder, err)
		}
		if err := os.Remove(aside); err != nil {
			return err
		}
	}
	return nil
}

func bind(outside, seen string) error {
	if err := makeFolders(outside, seen); err != nil {
		return err
	}
	if err := unix.Mount(outside, seen, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s to %s: %w", outside, seen, err)
	}
	return nil
}

func makeFolders(paths ...string) error {
	for _, path := range paths {
		if err := os.MkdirAll(path, 0o755); err != nil {
			return err
		}
	}
	return nil
}
