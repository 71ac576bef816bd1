package lab

import "testing"

// part is a test on a shared fabric. It leaves the fabric as it found it.
type part struct {
	name string
	do   func(*testing.T, *fabric)
}

func (f *fabric) all(t *testing.T, parts ...part) {
	t.Helper()
	for _, part := range parts {
		t.Run(part.name, func(t *testing.T) {
			part.do(t, f)
		})
		f.mustSettle(t)
	}
}

// TestAFabricWithNewFRR runs with FRR 10, which imports the pods' routes from the kernel's tables.
func TestAFabricWithNewFRR(t *testing.T) {
	t.Parallel()
	newFabric(t, newFRR).all(t,
		part{"tenants", isolation},
		part{"kills at each step", kills},
		part{"faults", matrix},
		part{"odd runtimes", unusualRuntimes},
		part{"bad disks", badDisks},
		part{"reboot", reboot},
	)
}

// TestAFabricWithOldFRR runs with FRR 8.4, which gets the routes over bgpd's socket. Debian packages it, so this test
// is never skipped: it includes the hostile pods and texts.
func TestAFabricWithOldFRR(t *testing.T) {
	t.Parallel()
	newFabric(t, oldFRR).all(t,
		part{"tenants", isolation},
		part{"faults", matrix},
		part{"attackers", attackers},
		part{"every protocol", cells},
		part{"spoofing", spoofing},
		part{"reboot", reboot},
	)
}
