package attachment

import "fmt"

// Length limits of a Key's names in bytes. The kernel limits interface names.
const (
	LongestName      = 255
	LongestInterface = 15
)

// Check validates a key from outside. Names follow CNI's rules (a letter or digit, then those, '_', '.', '-'); an
// interface name is printable ASCII that the kernel accepts.
func (k Key) Check() error {
	for _, field := range []struct{ kind, name string }{{"network", k.Network}, {"container id", k.ContainerID}} {
		if err := checkName(field.kind, field.name); err != nil {
			return err
		}
	}
	name := k.Interface
	if name == "" || len(name) > LongestInterface || name == "." || name == ".." {
		return fmt.Errorf("interface name must have 1 to %d characters and not be . or .., got %.40q", LongestInterface, name)
	}
	for _, character := range []byte(name) {
		if character <= ' ' || character > '~' || character == '/' || character == ':' {
			return fmt.Errorf("interface name must be printable ASCII without space, / and :, got %.40q", name)
		}
	}
	return nil
}

func checkName(kind, name string) error {
	if name == "" || len(name) > LongestName {
		return fmt.Errorf("%s must have 1 to %d bytes, got %d: %.40q", kind, LongestName, len(name), name)
	}
	if !consistsOf(name[:1], alphanumeric) || !consistsOf(name, alphanumeric+"_.-") {
		return fmt.Errorf("%s must consist of letters, digits, '_', '.' and '-', got %.40q", kind, name)
	}
	return nil
}
