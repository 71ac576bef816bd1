package tenants

import (
	"fmt"
	"regexp"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
)

// namespacePrefix starts the name of a tenant that is one namespace alone. A resource's name has no colon, so that no
// Tenant resource can ever be taken for a namespace.
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

// NamespaceTenant is the tenant of a namespace that no Tenant resource groups.
func NamespaceTenant(namespace string) string { return namespacePrefix + namespace }

// SingleNamespace that a tenant is; none where the name is that of a Tenant resource.
func SingleNamespace(tenant string) (namespace string, single bool) {
	return strings.CutPrefix(tenant, namespacePrefix)
}

// CheckNamespace refuses what Kubernetes would not take as a namespace's name.
func CheckNamespace(name string) error {
	if len(validation.IsDNS1123Label(name)) > 0 {
		return fmt.Errorf("%.80q is not the name of a namespace (a-z, 0-9, -, at most 63)", name)
	}
	return nil
}

// CheckTenant refuses what is neither a Tenant resource's name nor ns:NAMESPACE.
func CheckTenant(name string) error {
	if namespace, found := SingleNamespace(name); found {
		return CheckNamespace(namespace)
	}
	return checkSubdomain("tenant", name)
}

// CheckNode refuses what Kubernetes would not take as a node's name.
func CheckNode(name string) error { return checkSubdomain("node", name) }

func checkSubdomain(kind, name string) error {
	if len(name) > longestName || len(validation.IsDNS1123Subdomain(name)) > 0 {
		return fmt.Errorf("%.80q is not the name of a %s (a-z, 0-9, - and ., at most %d)", name, kind, longestName)
	}
	return nil
}
