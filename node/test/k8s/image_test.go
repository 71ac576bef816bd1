//go:build k8s

package k8s

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"
)

// image is a container image with a single layer.
type image struct {
	Name string
	// Files maps paths in the image to files of this machine, Links maps paths in the image to link targets.
	Files map[string]string
	Links map[string]string
	// Command is the image's default command.
	Command []string
}

// write writes the image as an OCI archive, which containerd can import.
func (i image) write(t *testing.T, file string) {
	t.Helper()
	layer := i.layer(t)
	blobs := map[string][]byte{}
	blob := func(kind string, content []byte) map[string]any {
		sum := sha256.Sum256(content)
		digest := hex.EncodeToString(sum[:])
		blobs["blobs/sha256/"+digest] = content
		return map[string]any{"mediaType": kind, "digest": "sha256:" + digest, "size": len(content)}
	}
	encode := func(value any) []byte {
		content, err := json.Marshal(value)
		check(t, err)
		return content
	}
	described := blob("application/vnd.oci.image.layer.v1.tar", layer)
	configuration := blob("application/vnd.oci.image.config.v1+json", encode(map[string]any{
		"architecture": "amd64", "os": "linux",
		"config": map[string]any{"Cmd": i.Command, "Env": []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}},
		"rootfs": map[string]any{"type": "layers", "diff_ids": []any{described["digest"]}},
	}))
	manifest := blob("application/vnd.oci.image.manifest.v1+json", encode(map[string]any{
		"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",
		"config": configuration, "layers": []any{described},
	}))
	manifest["annotations"] = map[string]string{"io.containerd.image.name": i.Name}
	blobs["index.json"] = encode(map[string]any{"schemaVersion": 2, "manifests": []any{manifest}})
	blobs["oci-layout"] = []byte(`{"imageLayoutVersion":"1.0.0"}`)

	var archive bytes.Buffer
	writer := tar.NewWriter(&archive)
	for _, name := range slices.Sorted(maps.Keys(blobs)) {
		check(t, writer.WriteHeader(&tar.Header{Name: name, Mode: 0o644, Size: int64(len(blobs[name]))}))
		_, err := writer.Write(blobs[name])
		check(t, err)
	}
	check(t, writer.Close())
	check(t, os.WriteFile(file, archive.Bytes(), 0o644))
}

func (i image) layer(t *testing.T) []byte {
	t.Helper()
	var layer bytes.Buffer
	writer := tar.NewWriter(&layer)
	made := map[string]bool{".": true}
	var folder func(name string)
	folder = func(name string) {
		if made[name] {
			return
		}
		made[name] = true
		folder(path.Dir(name))
		check(t, writer.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: name + "/", Mode: 0o755}))
	}
	for _, name := range []string{"dev", "etc", "proc", "run", "sys", "tmp", "var"} {
		folder(name)
	}
	for _, seen := range slices.Sorted(maps.Keys(i.Files)) {
		content, err := os.ReadFile(i.Files[seen])
		check(t, err)
		name := strings.TrimPrefix(seen, "/")
		folder(path.Dir(name))
		check(t, writer.WriteHeader(&tar.Header{Name: name, Mode: 0o755, Size: int64(len(content))}))
		_, err = writer.Write(content)
		check(t, err)
	}
	for _, seen := range slices.Sorted(maps.Keys(i.Links)) {
		name := strings.TrimPrefix(seen, "/")
		folder(path.Dir(name))
		check(t, writer.WriteHeader(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: i.Links[seen]}))
	}
	check(t, writer.Close())
	return layer.Bytes()
}
