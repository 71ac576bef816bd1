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
	longestUID   = 128
)

// NamespaceTenant returns the tenant of a namespace that no Tenant resource groups: ns:NAME@UID, or ns:NAME where
// namespaces have no UID.
func NamespaceTenant(namespace Namespace) string {
	if namespace.UID == "" {
		return namespacePrefix + namespace.Name
	}
	return namespacePrefix + namespace.Name + "@" + namespace.UID
}

// SingleNamespace returns the namespace of a tenant that is a single namespace. single is false for the name of a
// Tenant resource.
func SingleNamespace(tenant string) (namespace string, single bool) {
	return strings.CutPrefix(Display(tenant), namespacePrefix)
}

// Display returns the tenant as operators write it: without the UID of a namespace.
func Display(tenant string) string {
	name, _, _ := strings.Cut(tenant, "@")
	return name
}

// CheckNamespace checks that Kubernetes accepts the name as a namespace's.
func CheckNamespace(name string) error {
	if len(validation.IsDNS1123Label(name)) > 0 {
		return fmt.Errorf("namespace must be a name of a-z, 0-9 and -, at most 63 characters, got %.80q", name)
	}
	return nil
}

// CheckTenant checks that the name is that of a Tenant resource, ns:NAME or ns:NAME@UID.
func CheckTenant(name string) error {
	if namespace, found := SingleNamespace(name); found {
		if _, uid, has := strings.Cut(name, "@"); has && (len(uid) > longestUID || !printable.MatchString(uid)) {
			return fmt.Errorf("UID of a namespace must be a short printable text, got %.80q", uid)
		}
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
