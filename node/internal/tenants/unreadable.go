package tenants

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
)

// Unreadable is a record that cannot be parsed. No node writes such a record, so another program did, or a newer
// version of this one.
type Unreadable struct {
	Reason string
	// Names lists every address and prefix that occurs anywhere in it. It may hold them.
	Names []netip.Prefix
	// Unknown means that it is not JSON, so nothing is known about its content.
	Unknown bool
}

// maxNamed limits the prefixes of a record. With more, its content counts as unknown.
const maxNamed = MaxAddresses + MaxUses + MaxReleased

// Suspect returns what an unreadable record may hold.
func Suspect(content []byte, cause error) Unreadable {
	found := Unreadable{Reason: cause.Error()}
	var value any
	if err := json.Unmarshal(content, &value); err != nil {
		found.Unknown = true
		return found
	}
	found.collect(value)
	slices.SortFunc(found.Names, netip.Prefix.Compare)
	found.Names = slices.Compact(found.Names)
	found.Unknown = len(found.Names) > maxNamed
	return found
}

// SuspectObject is Suspect for a decoded value.
func SuspectObject(value any, cause error) Unreadable {
	content, err := json.Marshal(value)
	if err != nil {
		return Unreadable{Reason: cause.Error(), Unknown: true}
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

// MayHold reports whether the record may hold the address.
func (u Unreadable) MayHold(address netip.Addr) bool {
	return slices.ContainsFunc(u.Names, func(prefix netip.Prefix) bool { return prefix.Contains(address) })
}
