package attachment

import "fmt"

// Longest names that a Key may have, in bytes; an interface's is the kernel's.
const (
	LongestName      = 255
	LongestInterface = 15
)

// Check says what is wrong with a key from outside: names are CNI's (a letter or digit, then those, '_', '.', '-'), and
// the interface's is printable ASCII that the kernel takes.
func (k Key) Check() error {
	for _, field := range []struct{ kind, name string }{{"network", k.Network}, {"container id", k.ContainerID}} {
		if err := checkName(field.kind, field.name); err != nil {
			return err
		}
	}
	name := k.Interface
	if name == "" || len(name) > LongestInterface || name == "." || name == ".." {
		return fmt.Errorf("interface name %.40q is not one of 1 to %d characters", name, LongestInterface)
	}
	for _, character := range []byte(name) {
		if character <= ' ' || character > '~' || character == '/' || character == ':' {
			return fmt.Errorf("interface name %.40q has a character that the kernel or we refuse", name)
		}
	}
	return nil
}

func checkName(kind, name string) error {
	if name == "" || len(name) > LongestName {
		return fmt.Errorf("%s %.40q has %d bytes, not 1 to %d", kind, name, len(name), LongestName)
	}
	if !isOf(name[:1], alphanumeric) || !isOf(name, alphanumeric+"_.-") {
		return fmt.Errorf("%s %.40q has other characters than letters, digits, '_', '.' and '-'", kind, name)
	}
	return nil
}
