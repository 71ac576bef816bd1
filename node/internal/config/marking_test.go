package config

import (
	"reflect"
	"strings"
	"testing"

	"railwright/node/internal/plan"
)

func TestMarkingAndRoutersAreParsed(t *testing.T) {
	for written, want := range map[string]struct {
		marking plan.Marking
		routers string
	}{
		"":                     {plan.Marking{}, "192.0.2.1/32"},
		"  dscp: {rewrite: 0}": {plan.Marking{Policy: plan.RewriteMarking, CNP: []uint8{48}}, "192.0.2.1/32"},
		"  dscp: {allow: [0, 26, 26]}": {plan.Marking{Policy: plan.RefuseMarking, Allowed: []uint8{0, 26}, CNP: []uint8{48}},
			"192.0.2.1/32"},
		"  dscp: {rewrite: 26, cnp: []}":           {plan.Marking{Policy: plan.RewriteMarking, DSCP: 26}, "192.0.2.1/32"},
		"  dscp: {rewrite: 26, cnp: [40, 40]}":     {plan.Marking{Policy: plan.RewriteMarking, DSCP: 26, CNP: []uint8{40}}, "192.0.2.1/32"},
		"  routers: [192.0.2.0/24, 2001:db8::/64]": {plan.Marking{}, "192.0.2.0/24 2001:db8::/64"},
	} {
		text := strings.Replace(large, "  keep_ttl: true", written, 1)
		config, err := Parse([]byte(text), Own{})
		if err != nil {
			t.Fatalf("%q: %v", written, err)
		}
		rail := config.Rails[0]
		var routers []string
		for _, prefix := range rail.Routers {
			routers = append(routers, prefix.String())
		}
		if !reflect.DeepEqual(rail.Marking, want.marking) || strings.Join(routers, " ") != want.routers {
			t.Errorf("%q: %+v, routers %v", written, rail.Marking, rail.Routers)
		}
	}
	config, err := Parse([]byte(small), Own{})
	if err != nil || len(config.Rails[0].Routers) > 0 {
		t.Errorf("unnumbered: %v, %v", config.Rails[0].Routers, err)
	}
}
