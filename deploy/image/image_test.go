package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

var update = flag.Bool("update", false, "write the golden files")

// sources makes the folders that run reads, with small stand-ins for programs.
func sources(t *testing.T) (args []string, dir string) {
	t.Helper()
	dir = t.TempDir()
	for name, body := range map[string]string{
		"programs/amd64/scaleway": "amd64 scaleway", "programs/amd64/capacityctl": "amd64 capacityctl",
		"programs/arm64/scaleway": "arm64 scaleway", "programs/arm64/capacityctl": "arm64 capacityctl",
		"packages/bigfleet-agent_1.2.3-1_amd64.deb": "deb", "LICENSE": "licence",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(body), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return []string{
		"--program", "scaleway", "--version", "1.2.3", "--epoch", "1700000000",
		"--programs", filepath.Join(dir, "programs"), "--packages", filepath.Join(dir, "packages"),
		"--doc", filepath.Join(dir, "LICENSE"),
	}, dir
}

// archiveOf runs the command and returns the archive.
func archiveOf(t *testing.T, args []string, out string) []byte {
	t.Helper()
	if err := run(append(args, "--out", out), io.Discard); err != nil {
		t.Fatal(err)
	}
	body, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// layout is an archive as a runtime reads it: each blob is held to its digest
// and size.
type layout struct {
	files map[string][]byte
}

func read(t *testing.T, archive []byte) layout {
	t.Helper()
	l := layout{files: map[string][]byte{}}
	for h, body := range untar(t, archive) {
		if h.Typeflag == tar.TypeReg {
			l.files[h.Name] = body
		}
	}
	if got := string(l.files["oci-layout"]); got != `{"imageLayoutVersion":"1.0.0"}` {
		t.Errorf("oci-layout: %s", got)
	}
	return l
}

func untar(t *testing.T, archive []byte) map[*tar.Header][]byte {
	t.Helper()
	found := map[*tar.Header][]byte{}
	for r := tar.NewReader(bytes.NewReader(archive)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return found
		}
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		found[h] = body
	}
}

func (l layout) blob(t *testing.T, d v1.Descriptor, into any) []byte {
	t.Helper()
	body, there := l.files["blobs/sha256/"+d.Digest.Encoded()]
	if !there || digest.FromBytes(body) != d.Digest || int64(len(body)) != d.Size {
		t.Fatalf("blob %s: %d bytes, want %d", d.Digest, len(body), d.Size)
	}
	if into != nil {
		if err := json.Unmarshal(body, into); err != nil {
			t.Fatal(err)
		}
	}
	return body
}

// image returns configuration and files of the image for an architecture.
func (l layout) image(t *testing.T, tag, arch string) (v1.Image, map[*tar.Header][]byte) {
	t.Helper()
	var top, index v1.Index
	if err := json.Unmarshal(l.files["index.json"], &top); err != nil {
		t.Fatal(err)
	}
	if len(top.Manifests) != 1 || top.Manifests[0].Annotations[v1.AnnotationRefName] != tag {
		t.Fatalf("index.json: %s", l.files["index.json"])
	}
	l.blob(t, top.Manifests[0], &index)
	at := slices.IndexFunc(index.Manifests, func(d v1.Descriptor) bool { return d.Platform.OS == "linux" && d.Platform.Architecture == arch })
	if at < 0 {
		t.Fatalf("no image for %s in %+v", arch, index)
	}
	var manifest v1.Manifest
	var config v1.Image
	l.blob(t, index.Manifests[at], &manifest)
	l.blob(t, manifest.Config, &config)
	files := map[*tar.Header][]byte{}
	for i, d := range manifest.Layers {
		z, err := gzip.NewReader(bytes.NewReader(l.blob(t, d, nil)))
		if err != nil {
			t.Fatal(err)
		}
		plain, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		if got := digest.FromBytes(plain); got != config.RootFS.DiffIDs[i] {
			t.Errorf("layer %d: %s, the configuration says %s", i, got, config.RootFS.DiffIDs[i])
		}
		maps.Copy(files, untar(t, plain))
	}
	return config, files
}

func TestArchive(t *testing.T) {
	args, dir := sources(t)
	archive := archiveOf(t, args, filepath.Join(dir, "image.tar"))
	for _, arch := range []string{"amd64", "arm64"} {
		config, files := read(t, archive).image(t, "1.2.3", arch)
		if config.Architecture != arch || config.OS != "linux" || config.Config.User != "65532:65532" {
			t.Errorf("%s: %+v", arch, config)
		}
		var list []string
		for h, body := range files {
			list = append(list, fmt.Sprintf("%s %d:%d /%s", h.FileInfo().Mode(), h.Uid, h.Gid, h.Name))
			if h.Name == "usr/bin/provider" && string(body) != arch+" scaleway" {
				t.Errorf("%s: the provider is %s", arch, body)
			}
			if !h.ModTime.Equal(time.Unix(1700000000, 0)) {
				t.Errorf("%s has the time %s", h.Name, h.ModTime)
			}
			if h.Name == "etc/ssl/certs/ca-certificates.crt" && bytes.Count(body, []byte("BEGIN CERTIFICATE")) < 100 {
				t.Errorf("%d trusted roots", bytes.Count(body, []byte("BEGIN CERTIFICATE")))
			}
		}
		slices.Sort(list)
		got := strings.Join(slices.Compact(list), "\n") + "\n"
		if *update {
			if err := os.WriteFile("testdata/files.golden", []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile("testdata/files.golden")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(string(want), got); diff != "" {
			t.Errorf("%s: files (-want +got):\n%s", arch, diff)
		}
	}
}

func TestSameBytes(t *testing.T) {
	args, dir := sources(t)
	one := archiveOf(t, args, filepath.Join(dir, "one.tar"))
	later := time.Now().Add(time.Hour)
	if err := os.Chtimes(filepath.Join(dir, "LICENSE"), later, later); err != nil {
		t.Fatal(err)
	}
	if two := archiveOf(t, args, filepath.Join(dir, "two.tar")); !bytes.Equal(one, two) {
		t.Error("two archives of the same files differ")
	}
}

func TestRefused(t *testing.T) {
	args, dir := sources(t)
	empty := t.TempDir()
	for name, c := range map[string]struct {
		args []string
		want string
	}{
		"nothing":     {nil, "--program: missing\n--version: missing\n--programs: missing\n--out: missing"},
		"no packages": {append(slices.Clone(args), "--packages", empty), "holds no bigfleet-agent_*.deb"},
		"no program":  {append(slices.Clone(args), "--programs", empty), "program for amd64"},
	} {
		if c.args != nil {
			c.args = append(c.args, "--out", filepath.Join(dir, "refused.tar"))
		}
		if err := run(c.args, io.Discard); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "refused.tar")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("an archive is left: %v", err)
	}
}

// The Dockerfile makes the same image of another base.
func TestDockerfile(t *testing.T) {
	text, err := os.ReadFile("../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	config := (&image{program: "scaleway"}).config()
	want := []string{"\nUSER " + config.User + "\n", fmt.Sprintf("\nENTRYPOINT [%q]\n", config.Entrypoint[0]), " /" + packageFolder + "\n", " /" + docFolder + "\n"}
	for port := range config.ExposedPorts {
		want = append(want, strings.TrimSuffix(port, "/tcp"))
	}
	for _, words := range want {
		if !bytes.Contains(text, []byte(words)) {
			t.Errorf("the Dockerfile has no %q", words)
		}
	}
	if !regexp.MustCompile(`(?m)^ARG BASE=\S*distroless/static\S*:nonroot$`).Match(text) {
		t.Error("the Dockerfile's base is not distroless static")
	}
}

// TestRuns unpacks an image of the real provider and runs it as a container
// would: as its user, on a root that cannot be written.
func TestRuns(t *testing.T) {
	if os.Getuid() != 0 {
		t.Skip("needs root for a chroot")
	}
	if _, err := exec.LookPath("unshare"); err != nil {
		t.Skip("unshare is not installed")
	}
	args, dir := sources(t)
	if err := os.Remove(filepath.Join(dir, "programs", runtime.GOARCH, "scaleway")); err != nil {
		t.Fatal(err)
	}
	build := exec.Command("../../packaging/programs", "v1.2.3", filepath.Join(dir, "programs", runtime.GOARCH), runtime.GOARCH, "./provider/cmd/scaleway")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	config, files := read(t, archiveOf(t, append(args, "--arch", runtime.GOARCH), filepath.Join(dir, "image.tar"))).image(t, "1.2.3", runtime.GOARCH)
	// Not below a folder that only root may enter.
	root, err := os.MkdirTemp("/tmp", "bigfleet-image-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(root); err != nil {
			t.Error(err)
		}
	})
	unpack(t, root, files)
	container := func(args ...string) *exec.Cmd {
		cmd := exec.Command("unshare", append([]string{"--mount", "--pid", "--net", "--fork", "--kill-child", "sh", "-euc", `
ip link set lo up 2>/dev/null || :
mount --bind "$1" "$1"
mount -o remount,bind,ro "$1"
root=$1 user=$2
shift 2
exec chroot --userspec="$user" "$root" "$@"`, "-", root, config.Config.User, config.Config.Entrypoint[0]}, args...)...)
		cmd.Env = config.Config.Env
		cmd.Env = append([]string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}, cmd.Env[1:]...)
		return cmd
	}
	out, err := container("version").CombinedOutput()
	if err != nil || !strings.Contains(string(out), "v1.2.3") {
		t.Fatalf("version: %v\n%s", err, out)
	}
	// With the fake cloud inside it serves; nothing it needs is to be written.
	var log bytes.Buffer
	serve := container("--use-fake-backend", "--provider=trial", "--addr=127.0.0.1:9000", "--metrics-addr=127.0.0.1:9090")
	pipe, err := serve.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := serve.Start(); err != nil {
		t.Fatal(err)
	}
	limit := time.AfterFunc(2*time.Minute, func() { _ = serve.Process.Kill() }) // the read below ends then
	serving := false
	for buf := make([]byte, 4096); !serving; {
		n, err := pipe.Read(buf)
		log.Write(buf[:n])
		serving = bytes.Contains(log.Bytes(), []byte("serving"))
		if err != nil {
			break
		}
	}
	limit.Stop()
	_ = serve.Process.Kill() // unshare takes what it started with it
	_ = serve.Wait()
	if !serving {
		t.Errorf("it does not serve:\n%s", log.Bytes())
	}
}

func unpack(t *testing.T, root string, files map[*tar.Header][]byte) {
	t.Helper()
	if err := os.Chmod(root, 0o755); err != nil {
		t.Fatal(err)
	}
	headers := make([]*tar.Header, 0, len(files))
	for h := range files {
		headers = append(headers, h)
	}
	slices.SortFunc(headers, func(a, b *tar.Header) int { return strings.Compare(a.Name, b.Name) })
	for _, h := range headers {
		path := filepath.Join(root, h.Name)
		var err error
		if h.Typeflag == tar.TypeDir {
			err = os.MkdirAll(path, 0o755)
		} else {
			err = os.WriteFile(path, files[h], 0o600)
		}
		if err := errors.Join(err, os.Chown(path, h.Uid, h.Gid), os.Chmod(path, h.FileInfo().Mode())); err != nil {
			t.Fatal(err)
		}
	}
}
