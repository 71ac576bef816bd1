//go:build k8s

package k8s

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// authority is the cluster's certificate authority. Its certificates are valid for one day.
type authority struct {
	folder      string
	key         *ecdsa.PrivateKey
	certificate *x509.Certificate
}

// newAuthority creates an authority and writes ca.crt and the key pair that signs tokens (service-accounts.key and
// .pub) to the folder.
func newAuthority(t *testing.T, folder string) *authority {
	t.Helper()
	key := newKey(t)
	template := template("railwright-test")
	template.IsCA, template.BasicConstraintsValid = true, true
	template.KeyUsage = x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature
	signed, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	check(t, err)
	certificate, err := x509.ParseCertificate(signed)
	check(t, err)
	authority := &authority{folder: folder, key: key, certificate: certificate}
	check(t, os.MkdirAll(folder, 0o700))
	authority.write(t, "ca.crt", "CERTIFICATE", signed)

	tokens := newKey(t)
	authority.write(t, "service-accounts.key", "EC PRIVATE KEY", marshal(t, tokens))
	public, err := x509.MarshalPKIXPublicKey(tokens.Public())
	check(t, err)
	authority.write(t, "service-accounts.pub", "PUBLIC KEY", public)
	return authority
}

func (a *authority) path(name string) string { return filepath.Join(a.folder, name) }

// server writes the certificate NAME.crt and NAME.key of a server with these names and addresses.
func (a *authority) server(t *testing.T, name string, names []string, addresses ...string) {
	t.Helper()
	template := template(name)
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}
	template.DNSNames = names
	for _, address := range addresses {
		template.IPAddresses = append(template.IPAddresses, net.ParseIP(address))
	}
	a.sign(t, name, template)
}

// user writes the certificate NAME.crt and NAME.key of a user, and NAME.kubeconfig, which uses them for the API server.
func (a *authority) user(t *testing.T, name, user, server string, groups ...string) {
	t.Helper()
	template := template(user)
	template.Subject.Organization = groups
	template.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	a.sign(t, name, template)
	inline := func(name string) string {
		content, err := os.ReadFile(a.path(name))
		check(t, err)
		return base64.StdEncoding.EncodeToString(content)
	}
	check(t, os.WriteFile(a.path(name+".kubeconfig"), fmt.Appendf(nil, `apiVersion: v1
kind: Config
clusters: [{name: lab, cluster: {server: %q, certificate-authority-data: %s}}]
users: [{name: lab, user: {client-certificate-data: %s, client-key-data: %s}}]
contexts: [{name: lab, context: {cluster: lab, user: lab}}]
current-context: lab
`, server, inline("ca.crt"), inline(name+".crt"), inline(name+".key")), 0o600))
}

func (a *authority) sign(t *testing.T, name string, template *x509.Certificate) {
	t.Helper()
	key := newKey(t)
	signed, err := x509.CreateCertificate(rand.Reader, template, a.certificate, key.Public(), a.key)
	check(t, err)
	a.write(t, name+".crt", "CERTIFICATE", signed)
	a.write(t, name+".key", "EC PRIVATE KEY", marshal(t, key))
}

func (a *authority) write(t *testing.T, name, kind string, content []byte) {
	t.Helper()
	check(t, os.WriteFile(a.path(name), pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: content}), 0o600))
}

func template(name string) *x509.Certificate {
	serial, _ := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 100))
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
		KeyUsage:     x509.KeyUsageDigitalSignature,
	}
}

func newKey(t *testing.T) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(t, err)
	return key
}

func marshal(t *testing.T, key *ecdsa.PrivateKey) []byte {
	t.Helper()
	content, err := x509.MarshalECPrivateKey(key)
	check(t, err)
	return content
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
