package main

import (
	"net/netip"
	"slices"
	"testing"
)

func TestWithinFindsHostAddresses(t *testing.T) {
	addresses, err := links{}.Within([]netip.Prefix{netip.MustParsePrefix("255.255.255.255/32"), netip.MustParsePrefix("127.0.0.0/8")})
	if err != nil || !slices.Contains(addresses, "127.0.0.1 (lo)") {
		t.Errorf("%q, %v", addresses, err)
	}
	if addresses, err := (links{}).Within([]netip.Prefix{netip.MustParsePrefix("255.255.255.255/32")}); err != nil || len(addresses) > 0 {
		t.Errorf("no host has this address: %q, %v", addresses, err)
	}
}
