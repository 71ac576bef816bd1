package tenants

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
)

// Unreadable record: no node writes one, so somebody else did, or a newer version of this program.
type Unreadable struct {
	Why string
	// Names every address and prefix that is written anywhere in it: it may hold these.
	Names []netip.Prefix
	// Unknown: it is no JSON at all, so that nobody knows what it holds.
	Unknown bool
}

// mostNamed prefixes of one record; with more of them nobody knows what it holds.
const mostNamed = MostAddresses + MostUses + MostReleased

// Suspect what a record may hold that could not be read.
func Suspect(content []byte, cause error) Unreadable {
	found := Unreadable{Why: cause.Error()}
	var value any
	if err := json.Unmarshal(content, &value); err != nil {
		found.Unknown = true
		return found
	}
	found.collect(value)
	slices.SortFunc(found.Names, netip.Prefix.Compare)
	found.Names = slices.Compact(found.Names)
	found.Unknown = len(found.Names) > mostNamed
	return found
}

// SuspectObject is Suspect for a value that was decoded already.
func SuspectObject(value any, cause error) Unreadable {
	content, err := json.Marshal(value)
	if err != nil {
		return Unreadable{Why: cause.Error(), Unknown: true}
	}
	return Suspect(content, cause)
}

func (u *Unreadable) collect(value any) {
	switch value := value.(type) {
	case map[string]any:
		for name, inner := range value {
			u.collect(name)
			u.collect(inner)
		}
	case []any:
		for _, inner := range value {
			u.collect(inner)
		}
	case string:
		u.note(strings.TrimSpace(value))
	}
}

func (u *Unreadable) note(text string) {
	if address, err := netip.ParseAddr(text); err == nil {
		u.Names = append(u.Names, Host(address.WithZone("").Unmap()))
		return
	}
	if prefix, err := netip.ParsePrefix(text); err == nil {
		u.Names = append(u.Names, prefix.Masked())
	}
}

// MayHold an address.
func (u Unreadable) MayHold(address netip.Addr) bool {
	return slices.ContainsFunc(u.Names, func(prefix netip.Prefix) bool { return prefix.Contains(address) })
}
