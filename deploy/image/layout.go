package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// nonroot is the user that distroless images call so.
const nonroot = 65532

// Where things are in the image, and in deploy/Dockerfile's; the chart's values
// name the first.
const (
	packageFolder = "usr/share/bigfleet/packages/"
	docFolder     = "usr/share/doc/bigfleet/"
	entryPoint    = "usr/bin/provider"
)

// entry is a file or folder of an image.
type entry struct {
	path  string // relative to the root, without a slash at its end
	mode  fs.FileMode
	owner int
	body  []byte
}

// layer is a layer of an image that is in an archive.
type layer struct {
	blob v1.Descriptor // compressed
	diff digest.Digest // of the tar that it is
}

// archive is an OCI image layout in the making. See the image-layout chapter of
// the OCI image specification.
type archive struct {
	created time.Time
	blobs   map[digest.Digest][]byte
	images  []v1.Descriptor
	index   []byte // index.json, after finish
}

func newArchive(created time.Time) *archive {
	return &archive{created: created, blobs: map[digest.Digest][]byte{}}
}

// add keeps a blob.
func (a *archive) add(mediaType string, body []byte) v1.Descriptor {
	d := digest.FromBytes(body)
	a.blobs[d] = body
	return v1.Descriptor{MediaType: mediaType, Digest: d, Size: int64(len(body))}
}

// addJSON keeps a document of the specification.
func (a *archive) addJSON(mediaType string, document any) (v1.Descriptor, error) {
	body, err := json.Marshal(document)
	if err != nil {
		return v1.Descriptor{}, err
	}
	return a.add(mediaType, body), nil
}

// layer keeps the entries as a layer, with the folders above them.
func (a *archive) layer(entries []entry) (layer, error) {
	all := map[string]entry{}
	for _, e := range entries {
		all[e.path] = e
		for dir := path.Dir(e.path); dir != "."; dir = path.Dir(dir) {
			if _, given := all[dir]; !given {
				all[dir] = entry{path: dir, mode: fs.ModeDir | 0o755}
			}
		}
	}
	var plain bytes.Buffer
	w := tar.NewWriter(&plain)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if err := a.writeEntry(w, all[name]); err != nil {
			return layer{}, fmt.Errorf("%s: %w", name, err)
		}
	}
	if err := w.Close(); err != nil {
		return layer{}, err
	}
	var packed bytes.Buffer
	z, err := gzip.NewWriterLevel(&packed, gzip.BestCompression)
	if err != nil {
		return layer{}, err
	}
	if _, err := z.Write(plain.Bytes()); err != nil {
		return layer{}, err
	}
	if err := z.Close(); err != nil {
		return layer{}, err
	}
	return layer{
		blob: a.add(v1.MediaTypeImageLayerGzip, packed.Bytes()),
		diff: digest.FromBytes(plain.Bytes()),
	}, nil
}

func (a *archive) writeEntry(w *tar.Writer, e entry) error {
	h := &tar.Header{
		Typeflag: tar.TypeReg, Name: e.path, Size: int64(len(e.body)), Mode: int64(e.mode.Perm()),
		Uid: e.owner, Gid: e.owner, ModTime: a.created, Format: tar.FormatPAX,
	}
	if e.mode&fs.ModeSticky != 0 {
		h.Mode |= 0o1000
	}
	if e.mode.IsDir() {
		h.Typeflag, h.Name = tar.TypeDir, strings.TrimSuffix(e.path, "/")+"/"
	}
	if err := w.WriteHeader(h); err != nil {
		return err
	}
	_, err := w.Write(e.body)
	return err
}

// image keeps the image of one architecture.
func (a *archive) image(arch string, config v1.ImageConfig, layers []layer) error {
	platform := v1.Platform{Architecture: arch, OS: "linux"}
	document := v1.Image{Created: &a.created, Platform: platform, Config: config, RootFS: v1.RootFS{Type: "layers"}}
	manifest := v1.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageManifest}
	for _, l := range layers {
		document.RootFS.DiffIDs = append(document.RootFS.DiffIDs, l.diff)
		document.History = append(document.History, v1.History{Created: &a.created, CreatedBy: "make image"})
		manifest.Layers = append(manifest.Layers, l.blob)
	}
	var err error
	if manifest.Config, err = a.addJSON(v1.MediaTypeImageConfig, document); err != nil {
		return err
	}
	d, err := a.addJSON(v1.MediaTypeImageManifest, manifest)
	if err != nil {
		return err
	}
	d.Platform = &platform
	a.images = append(a.images, d)
	return nil
}

// finish makes one index of all images, under the tag.
func (a *archive) finish(tag string) error {
	index := func(of ...v1.Descriptor) v1.Index {
		return v1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex, Manifests: of}
	}
	d, err := a.addJSON(v1.MediaTypeImageIndex, index(a.images...))
	if err != nil {
		return err
	}
	d.Annotations = map[string]string{v1.AnnotationRefName: tag}
	a.index, err = json.Marshal(index(d))
	return err
}

// write writes the layout as a tar.
func (a *archive) write(out io.Writer) error {
	layout, err := json.Marshal(v1.ImageLayout{Version: v1.ImageLayoutVersion})
	if err != nil {
		return err
	}
	w := tar.NewWriter(out)
	entries := []entry{
		{path: v1.ImageLayoutFile, mode: 0o644, body: layout},
		{path: v1.ImageIndexFile, mode: 0o644, body: a.index},
		{path: v1.ImageBlobsDir, mode: fs.ModeDir | 0o755},
		{path: v1.ImageBlobsDir + "/sha256", mode: fs.ModeDir | 0o755},
	}
	for _, d := range slices.Sorted(maps.Keys(a.blobs)) {
		entries = append(entries, entry{path: v1.ImageBlobsDir + "/sha256/" + d.Encoded(), mode: 0o644, body: a.blobs[d]})
	}
	for _, e := range entries {
		if err := a.writeEntry(w, e); err != nil {
			return fmt.Errorf("%s: %w", e.path, err)
		}
	}
	return w.Close()
}
