package kubernetes

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"railwright/node/internal/tenants"
)

// TestAPeeringIsForTheNamespacesThatWereThere: one that is younger than the peering has taken the name of another, and a
// namespace that is not there opens nothing to who takes its name next.
func TestAPeeringIsForTheNamespacesThatWereThere(t *testing.T) {
	t.Parallel()
	noon := time.Date(2026, 11, 24, 12, 0, 0, 0, time.UTC)
	object := func(name string, age time.Duration, words ...any) *unstructured.Unstructured {
		made := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{"tenants": words}}}
		made.SetName(name)
		made.SetUID("uid-of-" + "it")
		made.SetCreationTimestamp(metav1.NewTime(noon.Add(-age)))
		return made
	}
	old, same, young := object("old", time.Hour), object("same", time.Minute), object("young", time.Second)
	for title, test := range map[string]struct {
		words []any
		want  string
	}{
		"both were there":          {[]any{"ns:old", "ns:same"}, ""},
		"a tenant by its own name": {[]any{"young", "ns:old"}, ""},
		"a younger one":            {[]any{"ns:old", "ns:young"}, `"young" (UID "uid-of-it")`},
		"a younger one, first":     {[]any{"ns:young", "red"}, "make it anew"},
		"one that is not there":    {[]any{"ns:old", "ns:gone"}, `"gone", which is not there`},
		"three":                    {[]any{"ns:old", "ns:same", "red"}, "does not name two"},
	} {
		found := policy(nil, []*unstructured.Unstructured{object("pair", time.Minute, test.words...)},
			[]*unstructured.Unstructured{old, same, young})
		rules := tenants.NewRules(*found)
		problems := strings.Join(rules.Problems(), " ")
		if test.want == "" && problems != "" || !strings.Contains(problems, test.want) {
			t.Errorf("%s: %q", title, problems)
		}
		first, _ := test.words[0].(string)
		if open := len(rules.Peers(first)) == 1; open != (test.want == "") {
			t.Errorf("%s: open is %v", title, open)
		}
	}
}
