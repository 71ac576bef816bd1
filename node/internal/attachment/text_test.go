package attachment

import (
	"strings"
	"testing"
)

func TestGrammarsAcceptOnlyValidNames(t *testing.T) {
	for name, grammar := range map[string]struct {
		is          func(string) bool
		good, wrong []string
	}{
		"path": {IsPath, []string{"/", "/run/netns/a b", "/" + strings.Repeat("x", LongestPath-1)}, []string{
			"", "run", "./run", "/a\nb", "/a\x00", "/é", "/\xff", "/" + strings.Repeat("x", LongestPath),
		}},
		"PCI address": {IsPCI, []string{"0000:08:00.2", "10000:ff:1f.7", "89abcdef:08:00.0"}, []string{
			"", "08:00.2", "000:08:00.2", "000000000:08:00.2", "0000:08:00.8", "0000:08:00:2", "0000.08.00.2", "0000:8:00.2",
			"0000:08:00.", "0000:08:00.22", "0000:08:00.2 ", "0000:0G:00.2", "0000:AB:00.2", "::::", "0000:08:00.2\n",
		}},
		"link": {IsLink, []string{"eth0", "_a", "br-rail0", "a.b-c_d", strings.Repeat("a", 15)}, []string{
			"", "-O", ".a", "a b", "a:b", "a@b", "a/b", "é", strings.Repeat("a", 16),
		}},
		"plain name": {IsPlain, []string{"a", "A.b-C", "a..b", strings.Repeat("a", 255)}, []string{
			"", "a b", "a=b", "a;b", "$(a)", "a/b", "a_b", "é", strings.Repeat("a", 256),
		}},
	} {
		for _, text := range grammar.good {
			if !grammar.is(text) {
				t.Errorf("%.80q should be a valid %s", text, name)
			}
		}
		for _, text := range grammar.wrong {
			if grammar.is(text) {
				t.Errorf("%.80q should not be a valid %s", text, name)
			}
		}
	}
}
