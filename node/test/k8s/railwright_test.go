//go:build k8s

package k8s

import (
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"railwright/node/internal/release"
	"railwright/node/testlab"
)

const (
	deployFolder = "../../deploy"
	// nodeImage is the image in deploy/daemonset.yaml, with the registry that containerd adds to names without one.
	nodeImage = "docker.io/railwright/node:" + release.Version
)

// makeNodeImage builds our programs and creates an image like that of deploy/Containerfile from this machine's Debian.
func (c *cluster) makeNodeImage(t *testing.T) {
	t.Helper()
	programs := filepath.Join(c.folder, "programs") + "/"
	testlab.Run(t, "../../cmd/railwright-cni/build", programs)
	testlab.Run(t, "env", "CGO_ENABLED=0", "go", "build", "-trimpath", "-o", programs, "railwright/node/cmd/railwrightd")
	busybox := filepath.Join(c.tools, "bin/busybox")
	files := map[string]string{
		"/usr/bin/railwrightd":     programs + "railwrightd",
		"/usr/bin/railwright-cni":  programs + "railwright-cni",
		"/usr/bin/install-plugins": deployFolder + "/install-plugins",
		"/bin/busybox":             busybox,
	}
	for _, program := range []string{"ovs-ofctl", "ovs-appctl"} {
		path, err := exec.LookPath(program)
		check(t, err)
		files["/usr/bin/"+program] = path
		for _, library := range libraries(t, path) {
			files[library] = library
		}
	}
	// Debian has this link, and containerd's paths of network namespaces use it.
	links := map[string]string{"/var/run": "../run"}
	for _, name := range []string{"sh", "cp", "chmod", "mv", "ln"} {
		links["/bin/"+name] = "busybox"
	}
	c.addImage(t, image{Name: nodeImage, Files: files, Links: links})
}

var libraryPath = regexp.MustCompile(`(/\S+) \(0x`)

// libraries returns the paths of the libraries that a program loads.
func libraries(t *testing.T, program string) []string {
	t.Helper()
	var found []string
	for _, library := range libraryPath.FindAllStringSubmatch(testlab.Run(t, "ldd", program), -1) {
		found = append(found, library[1])
	}
	return found
}

// deploy applies the manifests that an operator applies, and waits until every node's daemon is ready.
func (c *cluster) deploy(t *testing.T) {
	t.Helper()
	folder, err := filepath.Abs(deployFolder)
	check(t, err)
	c.kubectl(t, "apply", "-k", folder)
	c.kindsAreServed(t, "crd", "--all")
	c.rollOut(t)
	c.kubectl(t, "-n", "railwright", "rollout", "status", "--timeout=60s", "deployment/railwright-sweeper")
}

func (c *cluster) rollOut(t *testing.T) {
	t.Helper()
	const timeout = 60 * time.Second
	output, err := c.tryKubectl("", "-n", "railwright", "rollout", "status", "--timeout="+timeout.String(), "ds/railwrightd")
	if err != nil {
		t.Fatalf("railwrightd is not ready after %v: %s\n%s", timeout, output, c.explain())
	}
}

// explain returns the cluster's information about our daemon and pods that are not ready.
func (c *cluster) explain() string {
	var lines []string
	for _, question := range [][]string{
		{"get", "pods", "-A", "-o", "wide"},
		{"get", "events", "-A", "--sort-by=.lastTimestamp", "--field-selector=type=Warning"},
		{"-n", "railwright", "logs", "ds/railwrightd", "--all-pods", "--all-containers", "--prefix", "--tail=30"},
		{"-n", "railwright", "logs", "deploy/railwright-sweeper", "--tail=30"},
	} {
		answer, _ := c.tryKubectl("", question...)
		lines = append(lines, answer)
	}
	return strings.Join(lines, "\n")
}
