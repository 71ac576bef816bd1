package attachment

import (
	"path/filepath"
	"strings"
)

// Bounds of paths, the plugins' and the daemon's alike.
const (
	// LongestPath is the kernel's PATH_MAX.
	LongestPath = 4096
	// LongestSocket is the room that a unix socket's address has for its path.
	LongestSocket = 107
)

const (
	digits       = "0123456789"
	alphanumeric = digits + "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

// The plugins check their input by these functions. They use no regular expressions: compiling a few took 0.9 ms of
// every run.

// IsPath says whether a path is absolute, within the bound, and of printable ASCII.
func IsPath(path string) bool {
	return filepath.IsAbs(path) && len(path) <= LongestPath &&
		!strings.ContainsFunc(path, func(letter rune) bool { return letter < ' ' || letter > '~' })
}

// IsPCI says whether a name is the address of a PCI function, as 0000:08:00.2.
func IsPCI(name string) bool {
	const hexadecimal = digits + "abcdef"
	domain, rest, _ := strings.Cut(name, ":")
	return len(domain) >= 4 && len(domain) <= 8 && isOf(domain, hexadecimal) &&
		len(rest) == len("08:00.2") && rest[2] == ':' && rest[5] == '.' && isOf(rest[:2]+rest[3:5], hexadecimal) &&
		isOf(rest[6:], "01234567")
}

// IsLink says whether a name is an interface's, and one word for the tools of Open vSwitch and of FRR: none reads it as
// an option or as a kind of connection.
func IsLink(name string) bool {
	return name != "" && len(name) <= LongestInterface && isOf(name, alphanumeric+"_.-") &&
		name[0] != '.' && name[0] != '-'
}

// IsPlain says whether a name is of letters, digits, '-' and '.', of which every name in Kubernetes is made.
func IsPlain(name string) bool {
	return name != "" && len(name) <= LongestName && isOf(name, alphanumeric+"-.")
}

// isOf says whether a text has no other characters than these.
func isOf(text, characters string) bool { return strings.Trim(text, characters) == "" }
