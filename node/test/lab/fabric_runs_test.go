package lab

import "testing"

// part of what is done on a fabric that many share; each leaves it as it was.
type part struct {
	name string
	do   func(*testing.T, *fabric)
}

func (fabric *fabric) all(t *testing.T, parts ...part) {
	t.Helper()
	for _, part := range parts {
		t.Run(part.name, func(t *testing.T) {
			part.do(t, fabric)
		})
		fabric.mustSettle(t)
	}
}

// TestAFabricWithNewFRR: FRR 10 takes the pods' routes from the kernel's tables.
func TestAFabricWithNewFRR(t *testing.T) {
	newFabric(t, newFRR).all(t,
		part{"tenants", isolation},
		part{"kills at each step", kills},
		part{"faults", func(t *testing.T, fabric *fabric) { matrix(t, fabric) }},
		part{"odd runtimes", oddRuntimes},
		part{"bad disks", badDisks},
		part{"attackers", attackers},
		part{"spoofing", spoofing},
		part{"reboot", reboot},
	)
}

// TestAFabricWithOldFRR: FRR 8.4 is told the routes by bgpd's socket.
func TestAFabricWithOldFRR(t *testing.T) {
	newFabric(t, oldFRR).all(t,
		part{"tenants", isolation},
		part{"faults", func(t *testing.T, fabric *fabric) { matrix(t, fabric) }},
		part{"reboot", reboot},
	)
}
