package cni

import (
	"fmt"
	"runtime"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// checksumFeatures by the kernel's names: those for one family each are of devices that have not the generic one.
var checksumFeatures = []string{"tx-checksum-ip-generic", "tx-checksum-ipv4", "tx-checksum-ipv6", "tx-checksum-sctp"}

// makeChecksums of what the pod sends in its kernel, where its interface is a veth; a VF has hardware that makes them.
func (l *laid) makeChecksums(path, name string) error {
	link, err := l.inside.LinkByName(name)
	if err != nil {
		return err
	}
	if _, ok := link.(*netlink.Veth); !ok {
		return nil
	}
	return withDriver(path, func(driver *ethtool.Ethtool) error {
		before, err := driver.Features(name)
		if err != nil {
			return fmt.Errorf("features: %w", err)
		}
		on, off := map[string]bool{}, map[string]bool{}
		for _, feature := range checksumFeatures {
			if before[feature] {
				on[feature], off[feature] = true, false
			}
		}
		if len(off) == 0 {
			return nil
		}
		l.undo = append(l.undo, func() error {
			return withDriver(path, func(driver *ethtool.Ethtool) error { return driver.Change(name, on) })
		})
		if err := driver.Change(name, off); err != nil {
			return fmt.Errorf("checksums by the kernel: %w", err)
		}
		return nil
	})
}

// withDriver of interfaces in a network namespace. The library's socket belongs to the one that its thread is in; that
// thread ends with the goroutine, which never unlocks it.
func withDriver(path string, do func(*ethtool.Ethtool) error) error {
	ended := make(chan error, 1)
	go func() {
		runtime.LockOSThread()
		ended <- inNamespace(path, do)
	}()
	return <-ended
}

func inNamespace(path string, do func(*ethtool.Ethtool) error) error {
	namespace, err := netns.GetFromPath(path)
	if err != nil {
		return fmt.Errorf("network namespace %s: %w", path, err)
	}
	defer namespace.Close()
	if err := netns.Set(namespace); err != nil {
		return fmt.Errorf("network namespace %s: %w", path, err)
	}
	driver, err := ethtool.NewEthtool()
	if err != nil {
		return fmt.Errorf("ethtool: %w", err)
	}
	defer driver.Close()
	return do(driver)
}
