package cni

import (
	"fmt"
	"runtime"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
)

// checksumFeatures are the kernel's names. Devices without the generic feature have those of single families.
var checksumFeatures = []string{"tx-checksum-ip-generic", "tx-checksum-ipv4", "tx-checksum-ipv6", "tx-checksum-sctp"}

// disableChecksumOffload moves the pod's checksums into its kernel if its interface is a veth. A VF has hardware for
// them.
func (l *changes) disableChecksumOffload(path, name string) error {
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
			return fmt.Errorf("read features: %w", err)
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
			return fmt.Errorf("disable checksum offload: %w", err)
		}
		return nil
	})
}

// withDriver calls do inside a network namespace. The library's socket belongs to the namespace of its thread; that
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
		return fmt.Errorf("open network namespace %s: %w", path, err)
	}
	defer namespace.Close()
	if err := netns.Set(namespace); err != nil {
		return fmt.Errorf("enter network namespace %s: %w", path, err)
	}
	driver, err := ethtool.NewEthtool()
	if err != nil {
		return fmt.Errorf("open ethtool socket: %w", err)
	}
	defer driver.Close()
	return do(driver)
}
