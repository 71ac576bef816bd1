package metrics

import (
	"strings"
	"testing"
)

func TestUnknownHeldAddressesAreAbsent(t *testing.T) {
	held := NewHeld()
	at := serve(t, &held.served, nil)
	held.Set(map[string]int{"gpu-1.00000001": 3, "gpu-2.00000001": 1})
	held.Set(map[string]int{"gpu-1.00000001": 2})
	const name = "railwright_gone_node_addresses"
	if _, body := at("/metrics"); !strings.Contains(body, name+`{railnode="gpu-1.00000001"} 2`) || strings.Contains(body, "gpu-2") {
		t.Errorf("%s", body)
	}
	held.Set(nil)
	if _, body := at("/metrics"); strings.Contains(body, name+"{") {
		t.Errorf("%s", body)
	}
}
