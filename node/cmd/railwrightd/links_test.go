package main

import (
	"net/netip"
	"slices"
	"testing"
)

func TestOwnAddressesAreFoundByPrefix(t *testing.T) {
	own, err := links{}.Within([]netip.Prefix{netip.MustParsePrefix("255.255.255.255/32"), netip.MustParsePrefix("127.0.0.0/8")})
	if err != nil || !slices.Contains(own, "127.0.0.1 (lo)") {
		t.Errorf("%q, %v", own, err)
	}
	if own, err := (links{}).Within([]netip.Prefix{netip.MustParsePrefix("255.255.255.255/32")}); err != nil || len(own) > 0 {
		t.Errorf("no host has this address: %q, %v", own, err)
	}
}
