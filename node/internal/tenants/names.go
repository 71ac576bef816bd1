package tenants

import (
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// namespacePrefix begins the name of a tenant that is a single namespace. Names of resources contain no colon, so no
// Tenant resource can be mistaken for a namespace.
const namespacePrefix = "ns:"

var (
	instance  = regexp.MustCompile(`^[0-9a-f]{8}$`)
	printable = regexp.MustCompile(`^[\x21-\x7e]+$`)
)

const (
	longestName  = 240
	longestOwner = 512
	longestRail  = 63
)

// NamespaceTenant returns the tenant of a namespace that no Tenant resource groups.
func NamespaceTenant(namespace string) string { return namespacePrefix + namespace }

// SingleNamespace returns the namespace of a tenant that is a single namespace. single is false for the name of a
// Tenant resource.
func SingleNamespace(tenant string) (namespace string, single bool) {
	return strings.CutPrefix(tenant, namespacePrefix)
}

// CheckNamespace checks that Kubernetes accepts the name as a namespace's.
func CheckNamespace(name string) error {
	if len(validation.IsDNS1123Label(name)) > 0 {
		return fmt.Errorf("namespace must be a name of a-z, 0-9 and -, at most 63 characters, got %.80q", name)
	}
	return nil
}

// CheckTenant checks that the name is that of a Tenant resource or ns:NAMESPACE.
func CheckTenant(name string) error {
	if namespace, found := SingleNamespace(name); found {
		return CheckNamespace(namespace)
	}
	return checkSubdomain("tenant", name)
}

// CheckNode checks that Kubernetes accepts the name as a node's.
func CheckNode(name string) error { return checkSubdomain("node", name) }

func checkSubdomain(kind, name string) error {
	if len(name) > longestName || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return fmt.Errorf("%s must be a name of a-z, 0-9, - and ., at most %d characters, got %.80q", kind, longestName, name)
	}
	return nil
}
