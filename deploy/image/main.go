// Command image writes the container image of a provider as an OCI archive,
// without a daemon, a registry or a base image: what deploy/Dockerfile takes
// from its base is little enough to be made here. The same input gives the same
// bytes.
//
// The archive has one image for each architecture, and an index of them:
//
//	skopeo copy --all oci-archive:FILE docker://REGISTRY/NAME:TAG
package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"bigfleet-providers/shared/symlink"
)

// image is what the command line says.
type image struct {
	program  string   // of the provider
	version  string   // the tag
	programs string   // folder with ARCH/PROGRAM
	packages string   // folder with the agent's packages, "" for none
	docs     []string // licences
	arches   []string // as Go and OCI call them
	created  time.Time
}

func main() {
	if err := run(os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "image:", err)
		os.Exit(1)
	}
}

func run(args []string, stdout io.Writer) error {
	var img image
	var epoch int64
	flags := pflag.NewFlagSet("image", pflag.ContinueOnError)
	flags.StringVar(&img.program, "program", "", "the provider's `name`, such as scaleway")
	flags.StringVar(&img.version, "version", "", "the image's tag")
	flags.StringVar(&img.programs, "programs", "", "`folder` with the programs, in one folder for each architecture")
	flags.StringVar(&img.packages, "packages", "", "`folder` with the agent's .deb files; none if not given")
	flags.StringSliceVar(&img.docs, "doc", nil, "`file` with licences, may be repeated")
	flags.StringSliceVar(&img.arches, "arch", []string{"amd64", "arm64"}, "architectures")
	flags.Int64Var(&epoch, "epoch", 0, "time of all that is in the image, in `seconds` since 1970")
	out := flags.String("out", "", "the archive's `file`")
	if err := flags.Parse(args); err != nil {
		if errors.Is(err, pflag.ErrHelp) {
			return nil // pflag has printed it
		}
		return err
	}
	var errs []error
	for _, name := range []string{"program", "version", "programs", "out"} {
		if flags.Lookup(name).Value.String() == "" {
			errs = append(errs, fmt.Errorf("--%s: missing", name))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	img.created = time.Unix(epoch, 0).UTC()
	archive, err := img.build()
	if err != nil {
		return err
	}
	if err := writeFile(*out, archive); err != nil {
		return err
	}
	_, err = fmt.Fprintln(stdout, *out)
	return err
}

// build makes the archive.
func (img *image) build() (*archive, error) {
	base, err := img.base()
	if err != nil {
		return nil, err
	}
	a := newArchive(img.created)
	shared, err := a.layer(base)
	if err != nil {
		return nil, err
	}
	for _, arch := range img.arches {
		files, err := img.files(arch)
		if err != nil {
			return nil, err
		}
		own, err := a.layer(files)
		if err != nil {
			return nil, err
		}
		if err := a.image(arch, img.config(), []layer{shared, own}); err != nil {
			return nil, err
		}
	}
	if err := a.finish(img.version); err != nil {
		return nil, err
	}
	return a, nil
}

// files are the parts of an image that differ between architectures.
func (img *image) files(arch string) ([]entry, error) {
	var entries []entry
	for path, name := range map[string]string{entryPoint: img.program, "usr/bin/capacityctl": "capacityctl"} {
		body, err := os.ReadFile(filepath.Join(img.programs, arch, name))
		if err != nil {
			return nil, fmt.Errorf("program for %s: %w", arch, err)
		}
		entries = append(entries, entry{path: path, mode: 0o755, body: body})
	}
	return entries, nil
}

// base are the parts that all architectures share: the users and the trusted
// roots that a minimal base image has, the agent's packages, which the channel
// hands out, and the licences.
func (img *image) base() ([]entry, error) {
	roots, err := trustedRoots()
	if err != nil {
		return nil, err
	}
	entries := []entry{
		{path: "etc/group", mode: 0o644, body: []byte("root:x:0:\nnonroot:x:65532:\n")},
		{path: "etc/nsswitch.conf", mode: 0o644, body: []byte("hosts: files dns\n")},
		{path: "etc/passwd", mode: 0o644, body: []byte("root:x:0:0:root:/root:/sbin/nologin\nnonroot:x:65532:65532:nonroot:/home/nonroot:/sbin/nologin\n")},
		{path: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, body: roots},
		{path: "home/nonroot", mode: os.ModeDir | 0o700, owner: nonroot},
		{path: "tmp", mode: os.ModeDir | os.ModeSticky | 0o777},
	}
	sources := map[string][]string{docFolder: img.docs}
	if img.packages != "" {
		debs, err := filepath.Glob(filepath.Join(img.packages, "bigfleet-agent_*.deb"))
		if err != nil {
			return nil, err
		}
		if len(debs) == 0 {
			return nil, fmt.Errorf("--packages %s: holds no bigfleet-agent_*.deb (make deb)", img.packages)
		}
		sources[packageFolder] = debs
	}
	for folder, paths := range sources {
		for _, path := range paths {
			body, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			entries = append(entries, entry{path: folder + filepath.Base(path), mode: 0o644, body: body})
		}
	}
	return entries, nil
}

// writeFile leaves no half of an archive where a whole one is looked for.
func writeFile(path string, a *archive) error {
	path, err := symlink.Target(path)
	if err != nil {
		return err
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+strings.TrimSuffix(filepath.Base(path), ".tar")+"-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) // not there any more after the rename
	err = errors.Join(a.write(f), f.Chmod(0o644), f.Close())
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	return os.Rename(f.Name(), path)
}
