package kubernetes

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"railwright/node/internal/tenants"
)

// TestPeeringAppliesToExistingNamespaces checks that a namespace younger than the peering is a different one, and that
// a missing namespace opens nothing to a later one with its name.
func TestPeeringAppliesToExistingNamespaces(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	object := func(name string, age time.Duration, names ...any) *unstructured.Unstructured {
		made := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"tenants": names}}}
		made.SetName(name)
		made.SetUID("uid-of-" + "it")
		made.SetCreationTimestamp(metav1.NewTime(noon.Add(-age)))
		return made
	}
	old, same, young := object("old", time.Hour), object("same", time.Minute), object("young", time.Second)
	for title, test := range map[string]struct {
		names []any
		want  string
	}{
		"both exist":              {[]any{"ns:old", "ns:same"}, ""},
		"tenant by name":          {[]any{"young", "ns:old"}, ""},
		"younger namespace":       {[]any{"ns:old", "ns:young"}, `"young" (UID "uid-of-it")`},
		"younger namespace first": {[]any{"ns:young", "red"}, "create it again"},
		"missing namespace":       {[]any{"ns:old", "ns:gone"}, `"gone", which does not exist`},
		"three":                   {[]any{"ns:old", "ns:same", "red"}, "must name two"},
	} {
		found := policy(nil, []*unstructured.Unstructured{object("pair", time.Minute, test.names...)},
			[]*unstructured.Unstructured{old, same, young})
		rules := tenants.NewRules(*found)
		problems := strings.Join(rules.Problems(), " ")
		if test.want == "" && problems != "" || !strings.Contains(problems, test.want) {
			t.Errorf("%s: %q", title, problems)
		}
		first, _ := test.names[0].(string)
		if open := len(rules.Peers(first)) == 1; open != (test.want == "") {
			t.Errorf("%s: open is %v", title, open)
		}
	}
}
