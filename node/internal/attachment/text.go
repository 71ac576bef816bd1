package attachment

import (
	"path/filepath"
	"strings"
)

// Length limits of paths, shared by the plugins and the daemon.
const (
	// LongestPath is the kernel's PATH_MAX.
	LongestPath = 4096
	// LongestSocket is the space for a path in a unix socket's address.
	LongestSocket = 107
)

const (
	digits       = "0123456789"
	alphanumeric = digits + "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
)

// The plugins validate their input with these functions instead of regular expressions: compiling a few took 0.9 ms of
// every run.

// IsPath reports whether the path is absolute, not too long, and printable ASCII.
func IsPath(path string) bool {
	return filepath.IsAbs(path) && len(path) <= LongestPath &&
		!strings.ContainsFunc(path, func(letter rune) bool { return letter < ' ' || letter > '~' })
}

// IsPCI reports whether the name is the address of a PCI function, such as 0000:08:00.2.
func IsPCI(name string) bool {
	const hexadecimal = digits + "abcdef"
	domain, rest, _ := strings.Cut(name, ":")
	return len(domain) >= 4 && len(domain) <= 8 && consistsOf(domain, hexadecimal) &&
		len(rest) == len("08:00.2") && rest[2] == ':' && rest[5] == '.' && consistsOf(rest[:2]+rest[3:5], hexadecimal) &&
		consistsOf(rest[6:], "01234567")
}

// IsLink reports whether the name is a valid interface name that the tools of Open vSwitch and FRR read neither as an
// option nor as a connection method.
func IsLink(name string) bool {
	return name != "" && len(name) <= LongestInterface && consistsOf(name, alphanumeric+"_.-") &&
		name[0] != '.' && name[0] != '-'
}

// IsPlain reports whether the name consists of letters, digits, '-' and '.', as every name in Kubernetes does.
func IsPlain(name string) bool {
	return name != "" && len(name) <= LongestName && consistsOf(name, alphanumeric+"-.")
}

// consistsOf reports whether the text contains no characters outside the set.
func consistsOf(text, characters string) bool { return strings.Trim(text, characters) == "" }
