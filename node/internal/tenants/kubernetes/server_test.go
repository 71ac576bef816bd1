//go:build k8s

package kubernetes

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"
)

var (
	tenantResource    = schema.GroupVersionResource{Group: group, Version: version, Resource: "tenants"}
	peeringResource   = schema.GroupVersionResource{Group: group, Version: version, Resource: "tenantpeerings"}
	claimResource     = schema.GroupVersionResource{Group: group, Version: version, Resource: "addressclaims"}
	membersResource   = schema.GroupVersionResource{Group: group, Version: version, Resource: "tenantmembers"}
	machineResource   = schema.GroupVersionResource{Group: group, Version: version, Resource: "railnodes"}
	epochResource     = schema.GroupVersionResource{Group: group, Version: version, Resource: "railepochs"}
	namespaceResource = schema.GroupVersionResource{Version: "v1", Resource: "namespaces"}
	nodeResource      = schema.GroupVersionResource{Version: "v1", Resource: "nodes"}
	eventResource     = schema.GroupVersionResource{Version: "v1", Resource: "events"}
)

// server is a real etcd and kube-apiserver with the custom resources, roles and policies of deploy/.
type server struct {
	t         testing.TB
	folder    string
	binaries  string
	etcdPort  int
	peerPort  int
	port      int
	etcd, api *exec.Cmd
	admin     dynamic.Interface
}

func startServer(t testing.TB) *server {
	t.Helper()
	built, err := exec.Command("../../../test/k8s/build").Output()
	if err != nil {
		t.Fatalf("building kube-apiserver: %v", err)
	}
	s := &server{t: t, folder: t.TempDir(), binaries: filepath.Join(strings.TrimSpace(string(built)), "bin"), etcdPort: freePort(t), port: freePort(t)}
	s.peerPort = freePort(t)
	s.startEtcd()
	s.writeKey("sa.key")
	s.write("tokens.csv", "admin-token,admin,admin,\"system:masters\"\n")
	s.startAPI()
	s.admin, err = dynamic.NewForConfig(s.config())
	if err != nil {
		t.Fatal(err)
	}
	custom := []schema.GroupVersionResource{tenantResource, peeringResource, claimResource, membersResource, machineResource, epochResource}
	for _, resource := range custom {
		s.apply("../../../deploy/crds/" + resource.Resource + ".yaml")
	}
	s.namespace("railwright")
	s.apply("../../../deploy/access.yaml", "../../../deploy/networks.yaml")
	for _, resource := range custom {
		s.eventually(resource.Resource+" are served", func() error {
			_, err := s.admin.Resource(resource).List(context.Background(), metav1.ListOptions{})
			return err
		})
	}
	return s
}

func (s *server) startEtcd() {
	s.etcd = s.run("etcd", "--data-dir", filepath.Join(s.folder, "etcd"), "--unsafe-no-fsync", "--log-level", "error",
		"--listen-client-urls", urlOf("http", s.etcdPort), "--advertise-client-urls", urlOf("http", s.etcdPort),
		"--listen-peer-urls", urlOf("http", s.peerPort), "--initial-advertise-peer-urls", urlOf("http", s.peerPort),
		"--initial-cluster", "default="+urlOf("http", s.peerPort))
}

// withoutEtcd calls do while neither the API server nor etcd runs.
func (s *server) withoutEtcd(do func()) {
	s.stopAPI()
	_ = s.etcd.Process.Kill()
	_ = s.etcd.Wait()
	do()
	s.startEtcd()
	s.startAPI()
}

// backUp copies etcd's data, and restore takes it back.
func (s *server) backUp() { s.copyEtcd("etcd", "backup") }

func (s *server) restore() { s.copyEtcd("backup", "etcd") }

func (s *server) copyEtcd(from, to string) {
	s.t.Helper()
	s.withoutEtcd(func() {
		must(s.t, os.RemoveAll(filepath.Join(s.folder, to)))
		must(s.t, os.CopyFS(filepath.Join(s.folder, to), os.DirFS(filepath.Join(s.folder, from))))
		must(s.t, os.Chmod(filepath.Join(s.folder, to), 0o700))
	})
}

func (s *server) startAPI() {
	s.api = s.run("kube-apiserver", "--etcd-servers", urlOf("http", s.etcdPort), "--secure-port", fmt.Sprint(s.port),
		"--bind-address", "127.0.0.1", "--cert-dir", filepath.Join(s.folder, "certs"), "--authorization-mode", "RBAC",
		"--token-auth-file", filepath.Join(s.folder, "tokens.csv"), "--service-account-issuer", "https://railwright.test",
		"--service-account-key-file", filepath.Join(s.folder, "sa.key"),
		"--service-account-signing-key-file", filepath.Join(s.folder, "sa.key"),
		"--service-cluster-ip-range", "10.96.0.0/16", "--disable-admission-plugins", "ServiceAccount")
	client, err := rest.HTTPClientFor(s.config())
	if err != nil {
		s.t.Fatal(err)
	}
	s.eventually("kube-apiserver is ready", func() error {
		response, err := client.Get(urlOf("https", s.port) + "/readyz")
		if err != nil {
			return err
		}
		_ = response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return fmt.Errorf("%s", response.Status)
		}
		return nil
	})
}

func (s *server) stopAPI() {
	_ = s.api.Process.Kill()
	_ = s.api.Wait()
}

// run starts a program that ends with the test.
func (s *server) run(name string, arguments ...string) *exec.Cmd {
	s.t.Helper()
	log, err := os.OpenFile(filepath.Join(s.folder, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		s.t.Fatal(err)
	}
	command := exec.Command(filepath.Join(s.binaries, name), arguments...)
	command.Stdout, command.Stderr, command.Dir = log, log, s.folder
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := command.Start(); err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() {
		_ = command.Process.Kill()
		_ = command.Wait()
		_ = log.Close()
		if s.t.Failed() {
			content, _ := os.ReadFile(log.Name())
			s.t.Logf("%s: %s", name, content[max(0, len(content)-3000):])
		}
	})
	return command
}

// config returns the administrator's configuration.
func (s *server) config() *rest.Config {
	return &rest.Config{
		Host: urlOf("https", s.port), BearerToken: "admin-token", QPS: 200, Burst: 400,
		TLSClientConfig: rest.TLSClientConfig{Insecure: true},
	}
}

// daemon returns the configuration of the daemons' service account in deploy/, bound to a node.
func (s *server) daemon(node string) *rest.Config { return s.account("railwrightd", node) }

// account returns the configuration of a service account in deploy/.
func (s *server) account(name, node string) *rest.Config {
	config := s.config()
	config.Impersonate = rest.ImpersonationConfig{
		UserName: "system:serviceaccount:railwright:" + name,
		Groups:   []string{"system:serviceaccounts", "system:authenticated"},
		Extra:    map[string][]string{"authentication.kubernetes.io/node-name": {node}},
	}
	return config
}

func (s *server) create(resource schema.GroupVersionResource, text, kind, version, name string) *unstructured.Unstructured {
	s.t.Helper()
	made, err := s.try(resource, text, kind, version, name)
	if err != nil {
		s.t.Fatal(err)
	}
	return made
}

// try creates an object with the spec.
func (s *server) try(resource schema.GroupVersionResource, text, kind, version, name string) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{Object: map[string]any{}}
	if text != "" {
		var body map[string]any
		if err := yaml.Unmarshal([]byte(text), &body); err != nil {
			s.t.Fatal(err)
		}
		object.Object["spec"] = body
	}
	object.SetAPIVersion(version)
	object.SetKind(kind)
	object.SetName(name)
	return s.admin.Resource(resource).Create(context.Background(), object, metav1.CreateOptions{})
}

func (s *server) tenant(name, text string) error {
	_, err := s.try(tenantResource, text, "Tenant", group+"/"+version, name)
	return err
}

func (s *server) peering(name, text string) error {
	_, err := s.try(peeringResource, text, "TenantPeering", group+"/"+version, name)
	return err
}

func (s *server) namespace(name string) { s.create(namespaceResource, "", "Namespace", "v1", name) }

// recreateNamespace replaces a namespace by a new one with the same name. No controller runs here, so the test removes
// the finalizers.
func (s *server) recreateNamespace(name string) {
	s.t.Helper()
	ctx := context.Background()
	must(s.t, s.admin.Resource(namespaceResource).Delete(ctx, name, metav1.DeleteOptions{}))
	object, err := s.admin.Resource(namespaceResource).Get(ctx, name, metav1.GetOptions{})
	must(s.t, err)
	must(s.t, unstructured.SetNestedSlice(object.Object, nil, "spec", "finalizers"))
	_, err = s.admin.Resource(namespaceResource).Update(ctx, object, metav1.UpdateOptions{}, "finalize")
	must(s.t, err)
	s.eventually("removal of namespace "+name+"", func() error {
		if _, err := s.admin.Resource(namespaceResource).Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Errorf("it exists: %s", fmt.Sprint(err))
		}
		return nil
	})
	time.Sleep(1100 * time.Millisecond) // the API server has ages in whole seconds
	s.namespace(name)
}

func (s *server) node(name string) {
	s.create(nodeResource, "", "Node", "v1", name)
}

// apply creates the objects of manifests.
func (s *server) apply(paths ...string) {
	s.t.Helper()
	for _, path := range paths {
		content, err := os.ReadFile(path)
		if err != nil {
			s.t.Fatal(err)
		}
		for _, text := range strings.Split(string(content), "\n---\n") {
			object := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(text), &object.Object); err != nil {
				s.t.Fatalf("%s: %v", path, err)
			}
			s.put(object)
		}
	}
}

func (s *server) put(object *unstructured.Unstructured) {
	s.t.Helper()
	kind := object.GroupVersionKind()
	plural := strings.ToLower(kind.Kind) + "s"
	if strings.HasSuffix(plural, "ys") {
		plural = strings.TrimSuffix(plural, "ys") + "ies"
	}
	var client dynamic.ResourceInterface = s.admin.Resource(kind.GroupVersion().WithResource(plural))
	if space := object.GetNamespace(); space != "" {
		client = s.admin.Resource(kind.GroupVersion().WithResource(plural)).Namespace(space)
	}
	s.eventually(fmt.Sprintf("%s %s exists", kind.Kind, object.GetName()), func() error {
		_, err := client.Create(context.Background(), object, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
}

func (s *server) eventually(name string, do func() error) {
	s.t.Helper()
	for end := time.Now().Add(90 * time.Second); ; time.Sleep(100 * time.Millisecond) {
		err := do()
		if err == nil {
			return
		}
		if time.Now().After(end) {
			s.t.Fatalf("%s: %v", name, err)
		}
	}
}

func (s *server) write(name, content string) {
	if err := os.WriteFile(filepath.Join(s.folder, name), []byte(content), 0o600); err != nil {
		s.t.Fatal(err)
	}
}

func (s *server) writeKey(name string) {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		s.t.Fatal(err)
	}
	s.write(name, string(pem.EncodeToMemory(&pem.Block{Type: "RSA PRIVATE KEY", Bytes: x509.MarshalPKCS1PrivateKey(key)})))
}

func urlOf(scheme string, port int) string { return fmt.Sprintf("%s://127.0.0.1:%d", scheme, port) }

func freePort(t testing.TB) int {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}
