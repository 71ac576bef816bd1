//go:build k8s

package k8s

import (
	"os"
	"path/filepath"
	"testing"
)

// multusManifests are the objects that Multus and whereabouts need. Real clusters already have them.
const multusManifests = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: network-attachment-definitions.k8s.cni.cncf.io}
spec:
  group: k8s.cni.cncf.io
  scope: Namespaced
  names: {plural: network-attachment-definitions, singular: network-attachment-definition,
    kind: NetworkAttachmentDefinition, shortNames: [net-attach-def]}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {config: {type: string}}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: multus}
rules:
- {apiGroups: [k8s.cni.cncf.io], resources: ["*"], verbs: [get, list, watch]}
- {apiGroups: [""], resources: [pods, pods/status], verbs: [get, list, update, watch]}
- {apiGroups: ["", events.k8s.io], resources: [events], verbs: [create, patch, update]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: multus}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: multus}
subjects: [{kind: User, name: multus, apiGroup: rbac.authorization.k8s.io}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: whereabouts}
rules:
- {apiGroups: [whereabouts.cni.cncf.io], resources: ["*"], verbs: ["*"]}
- {apiGroups: [coordination.k8s.io], resources: [leases], verbs: ["*"]}
- {apiGroups: [""], resources: [pods], verbs: [get, list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: whereabouts}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: whereabouts}
subjects: [{kind: User, name: whereabouts, apiGroup: rbac.authorization.k8s.io}]
`

// installNetworks applies the objects of Multus and whereabouts.
func (c *cluster) installNetworks(t *testing.T) {
	t.Helper()
	manifests := []string{multusManifests}
	files, err := filepath.Glob(filepath.Join(c.tools, "crds", "*.yaml"))
	check(t, err)
	for _, file := range files {
		content, err := os.ReadFile(file)
		check(t, err)
		manifests = append(manifests, string(content))
	}
	c.apply(t, manifests...)
	c.kindsAreServed(t, "crd", "--all")
}
