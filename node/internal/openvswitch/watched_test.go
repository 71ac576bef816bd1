package openvswitch

import "testing"

func TestOnlyEventsOfInterfacesThatWereReadMatter(t *testing.T) {
	host := &host{watched: map[string]int{"br-rail0": 7, "br-rail1": 0}} // br-rail1 is missing
	for _, event := range []struct {
		name  string
		index int
		want  bool
	}{
		{"br-rail0", 7, true},
		{"br-rail0", 9, true}, // created again
		{"renamed", 7, true},
		{"br-rail1", 12, true},
		{"", 7, true}, // an address or a neighbour
		{"", 9, false},
		{"veth1", 9, false},
	} {
		if got := host.matters(event.name, event.index); got != event.want {
			t.Errorf("event of %q, index %d: matters %v, want %v", event.name, event.index, got, event.want)
		}
	}
}
