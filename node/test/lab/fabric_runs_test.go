package lab

import "testing"

// part of what is done on a fabric that many share; each leaves it as it was.
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

// TestAFabricWithNewFRR: FRR 10 takes the pods' routes from the kernel's tables.
func TestAFabricWithNewFRR(t *testing.T) {
	t.Parallel()
	newFabric(t, newFRR).all(t,
		part{"tenants", isolation},
		part{"kills at each step", kills},
		part{"faults", matrix},
		part{"odd runtimes", oddRuntimes},
		part{"bad disks", badDisks},
		part{"reboot", reboot},
	)
}

// TestAFabricWithOldFRR: FRR 8.4 is told the routes by bgpd's socket. It is Debian's own, so this part is waived nowhere:
// hostile pods and texts are here.
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
