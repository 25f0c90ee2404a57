// Command notices lists the modules that programs of this repository are built
// from, with the licence of each and its text, as their licences ask of whoever
// hands out a binary. It fails for a licence that it does not know, so that a
// new dependency is looked at before it ships.
//
//	go run ./packaging/notices ./agent/cmd/bigfleet-agent
package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
)

// module is what go list says of one.
type module struct {
	Path, Version, Dir string
	Main               bool
}

// licence is one file of a module.
type licence struct {
	names []string // SPDX identifiers; none for a notice that belongs to a licence
	file  string
	text  string
}

func main() {
	w := bufio.NewWriter(os.Stdout)
	if err := errors.Join(run(context.Background(), os.Args[1:], w), w.Flush()); err != nil {
		fmt.Fprintln(os.Stderr, "notices:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, packages []string, w io.Writer) error {
	if len(packages) == 0 {
		return errors.New("no packages given: want some such as ./agent/cmd/bigfleet-agent")
	}
	modules, err := dependencies(ctx, packages)
	if err != nil {
		return err
	}
	goroot, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return fmt.Errorf("go env GOROOT: %w", err)
	}
	modules = append(modules, module{Path: "the Go standard library", Version: runtime.Version(), Dir: strings.TrimSpace(string(goroot))})
	found := make([][]licence, len(modules))
	var errs []error
	for i, m := range modules {
		if found[i], err = licences(m.Dir); err != nil {
			errs = append(errs, fmt.Errorf("%s %s: %w", m.Path, m.Version, err))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return report(w, modules, found)
}

// report writes a table and then the texts.
func report(w io.Writer, modules []module, found [][]licence) error {
	var out bytes.Buffer
	out.WriteString("These programs contain the following modules.\n\n")
	for i, m := range modules {
		var names []string
		for _, l := range found[i] {
			names = append(names, l.names...)
		}
		slices.Sort(names)
		fmt.Fprintf(&out, "%s %s: %s\n", m.Path, m.Version, strings.Join(slices.Compact(names), ", "))
	}
	for i, m := range modules {
		for _, l := range found[i] {
			fmt.Fprintf(&out, "\n%s\n%s %s, %s\n%s\n\n%s\n", strings.Repeat("=", 80), m.Path, m.Version, l.file, strings.Repeat("-", 80), strings.TrimSpace(l.text))
		}
	}
	_, err := w.Write(out.Bytes())
	return err
}

// dependencies returns the modules that are linked into the packages on any of
// the architectures that are shipped, by path.
func dependencies(ctx context.Context, packages []string) ([]module, error) {
	found := map[string]module{}
	for _, arch := range []string{"amd64", "arm64"} {
		//nolint:gosec // the packages are the caller's own arguments
		cmd := exec.CommandContext(ctx, "go", append([]string{"list", "-deps", "-json=Module", "--"}, packages...)...)
		cmd.Env = append(os.Environ(), "GOOS=linux", "GOARCH="+arch, "CGO_ENABLED=0")
		cmd.Stderr = os.Stderr
		out, err := cmd.Output()
		if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		for decoder := json.NewDecoder(bytes.NewReader(out)); ; {
			var of struct{ Module *module }
			if err := decoder.Decode(&of); errors.Is(err, io.EOF) {
				break
			} else if err != nil {
				return nil, fmt.Errorf("go list: %w", err)
			}
			if m := of.Module; m != nil && !m.Main { // nil for the standard library
				found[m.Path] = *m
			}
		}
	}
	var modules []module
	for _, path := range slices.Sorted(maps.Keys(found)) {
		modules = append(modules, found[path])
	}
	return modules, nil
}

// licences reads the licence files of a module.
func licences(dir string) ([]licence, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var found []licence
	known := false
	for _, e := range entries {
		name := strings.ToUpper(e.Name())
		isNotice := strings.HasPrefix(name, "NOTICE")
		if !e.Type().IsRegular() || !isNotice && !strings.HasPrefix(name, "LICEN") && !strings.HasPrefix(name, "COPYING") {
			continue
		}
		text, err := os.ReadFile(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		l := licence{file: e.Name(), text: string(text)}
		if !isNotice {
			if l.names = identify(l.text); len(l.names) == 0 {
				return nil, fmt.Errorf("%s is a licence that is not known here: read it, then add it to identify", e.Name())
			}
			known = true
		}
		found = append(found, l)
	}
	if !known {
		return nil, errors.New("no licence file")
	}
	return found, nil
}
