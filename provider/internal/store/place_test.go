package store

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"bigfleet-providers/provider/internal/machine"
)

// TestLinksStayLinks: what is made or replaced is the file that a link leads to,
// wherever that is, whether it exists yet or not.
func TestLinksStayLinks(t *testing.T) {
	now := time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	src := fixture(t, "v1.state")
	for _, form := range []string{"absolute", "relative", "of a link"} {
		t.Run(form, func(t *testing.T) {
			dir := t.TempDir()
			volume := filepath.Join(dir, "volume")
			if err := errors.Join(os.Mkdir(volume, 0o700), os.Mkdir(filepath.Join(dir, "links"), 0o700)); err != nil {
				t.Fatal(err)
			}
			link := func(name string) (string, string) {
				t.Helper()
				file, path := filepath.Join(volume, name), filepath.Join(dir, "links", name)
				to := file
				switch form {
				case "relative":
					to = filepath.Join("..", "volume", name)
				case "of a link":
					to = path + ".second"
					if err := os.Symlink(file, to); err != nil {
						t.Fatal(err)
					}
				}
				if err := os.Symlink(to, path); err != nil {
					t.Fatal(err)
				}
				return file, path
			}
			want := func(what, file, path string) {
				t.Helper()
				if info, err := os.Lstat(path); err != nil || info.Mode().Type() != fs.ModeSymlink {
					t.Errorf("%s: the link is one no more: %v", what, err)
				}
				if info, err := os.Lstat(file); err != nil || !info.Mode().IsRegular() {
					t.Errorf("%s: no file where the link leads: %v", what, err)
				}
			}

			file, path := link("state")
			s, err := Open(Options{Path: path}) // there is no file yet
			if err != nil {
				t.Fatal(err)
			}
			must(t, s, "a", to(machine.Idle))
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			want("a new state", file, path)

			backup, dest := link("backup")
			if _, err := Backup(path, dest); err != nil {
				t.Fatal(err)
			}
			want("a backup", backup, dest)
			if _, err := Backup(path, dest); err == nil || !strings.Contains(err.Error(), "exists already") {
				t.Errorf("a backup over another by its link: %v", err)
			}

			if _, err := Restore(src, path, false, now); err == nil || !strings.Contains(err.Error(), "--force") {
				t.Errorf("a restore over a file by its link, without force: %v", err)
			}
			r, err := Restore(src, path, true, now)
			if err != nil {
				t.Fatal(err)
			}
			want("a restore", file, path)
			if c, err := Inspect(file); err != nil || len(c.Machines) != 2 {
				t.Errorf("the file that the link leads to was not restored: %+v, %v", c, err)
			}
			if c, err := Inspect(r.Replaced); err != nil || len(c.Machines) != 1 || filepath.Dir(r.Replaced) != volume {
				t.Errorf("the file before, %s: %+v, %v", r.Replaced, c, err)
			}
			file, path = link("fresh")
			if _, err := Restore(src, path, false, now); err != nil {
				t.Errorf("by a link to nothing: %v", err)
			}
			want("a restore by a link to nothing", file, path)
			if left, _ := filepath.Glob(filepath.Join(dir, "*", "*.new-*")); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}

	dir := t.TempDir()
	for name, to := range map[string]string{"loop": "loop", "away": "no-such-volume/state"} {
		link := filepath.Join(dir, name)
		if err := os.Symlink(to, link); err != nil {
			t.Fatal(err)
		}
		if _, err := Open(Options{Path: link}); err == nil || !strings.Contains(err.Error(), link) || name == "away" && !strings.Contains(err.Error(), filepath.Join(dir, "no-such-volume")) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := Inspect(link); err == nil || name == "away" && (!errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), to)) {
			t.Errorf("inspect %s: %v", name, err)
		}
	}
}

// without makes calls fail that some file systems do not have.
func without(t *testing.T, links, renames error) {
	t.Helper()
	link, rename := hardLink, renameToEmpty
	t.Cleanup(func() { hardLink, renameToEmpty = link, rename })
	if links != nil {
		hardLink = func(from, to string) error { return &os.LinkError{Op: "link", Old: from, New: to, Err: links} }
	}
	if renames != nil {
		renameToEmpty = func(string, string) error { return renames }
	}
}

// TestFileSystemWithoutLinks: a file system need not have hard links, nor a
// rename that replaces nothing, to keep a state and its copies.
func TestFileSystemWithoutLinks(t *testing.T) {
	for name, errs := range map[string][2]error{
		"CIFS":               {syscall.EOPNOTSUPP, nil},
		"FAT":                {syscall.EPERM, nil},
		"exFAT by FUSE":      {syscall.EPERM, syscall.EINVAL},
		"no call at all":     {syscall.ENOSYS, syscall.ENOSYS},
		"one link a file":    {syscall.EMLINK, syscall.EOPNOTSUPP},
		"denied by AppArmor": {syscall.EACCES, syscall.EINVAL},
	} {
		t.Run(name, func(t *testing.T) {
			without(t, errs[0], errs[1])
			keepsAState(t, t.TempDir())
		})
	}
}

// TestRealFileSystem does the same in a folder of one's own, such as a mounted
// exFAT: BIGFLEET_STORE_DIR=/mnt/stick.
func TestRealFileSystem(t *testing.T) {
	dir := os.Getenv("BIGFLEET_STORE_DIR")
	if dir == "" {
		t.Skip("BIGFLEET_STORE_DIR names no folder on a file system to try")
	}
	dir, err := os.MkdirTemp(dir, "store-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	keepsAState(t, dir)
}

func keepsAState(t *testing.T, dir string) {
	t.Helper()
	now := time.Date(2026, 5, 6, 7, 8, 9, 0, time.UTC)
	path, copied, fresh := filepath.Join(dir, "state"), filepath.Join(dir, "copy"), filepath.Join(dir, "fresh")
	s, err := Open(Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	must(t, s, "a", to(machine.Idle))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := Backup(path, copied); err != nil {
		t.Fatal(err)
	}
	if _, err := Backup(path, copied); err == nil || !strings.Contains(err.Error(), "exists already") {
		t.Errorf("a backup over another: %v", err)
	}
	if s, err = Open(Options{Path: path}); err != nil {
		t.Fatal(err)
	}
	must(t, s, "b", to(machine.Idle))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Restore(copied, fresh, false, now); err != nil {
		t.Errorf("where nothing was: %v", err)
	}
	r, err := Restore(copied, path, true, now)
	if err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(r.Replaced); err != nil || !bytes.Equal(got, before) {
		t.Errorf("the file before is not as it was: %v", err)
	}
	for name, want := range map[string]int{path: 1, fresh: 1, copied: 1, r.Replaced: 2} {
		if c, err := Inspect(name); err != nil || len(c.Machines) != want {
			t.Errorf("%s: %+v, %v; want %d machines", filepath.Base(name), c, err, want)
		}
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "*")); len(files) != 4 {
		t.Errorf("left behind: %v", files)
	}
}

// TestNewFileReplacesNothing: of many that make a file at the same moment one
// does, and no reader finds half of it, whatever the file system has.
func TestNewFileReplacesNothing(t *testing.T) {
	for name, errs := range map[string][2]error{"links": {}, "renames": {syscall.EPERM, nil}, "neither": {syscall.EPERM, syscall.EINVAL}} {
		t.Run(name, func(t *testing.T) {
			without(t, errs[0], errs[1])
			dir := t.TempDir()
			path := filepath.Join(dir, "state")
			const makers = 8
			results := make([]error, makers)
			var all sync.WaitGroup
			for i := range makers {
				all.Go(func() {
					temp := filepath.Join(dir, string(rune('a'+i)))
					if results[i] = os.WriteFile(temp, []byte(temp), 0o600); results[i] == nil {
						results[i] = putNew(temp, path)
					}
				})
			}
			all.Wait()
			made := ""
			for i, err := range results {
				switch {
				case err == nil && made == "":
					made = filepath.Join(dir, string(rune('a'+i)))
				case err == nil:
					t.Error("two made it")
				case !errors.Is(err, fs.ErrExist):
					t.Error(err)
				}
			}
			if got, err := os.ReadFile(path); err != nil || string(got) != made {
				t.Errorf("the file has %q, %v; want %q", got, err, made)
			}
		})
	}
}

// TestWhatCannotBePutInPlaceLeavesNothing: no empty file stays where a state
// belongs.
func TestWhatCannotBePutInPlaceLeavesNothing(t *testing.T) {
	without(t, syscall.EPERM, syscall.EINVAL)
	path := filepath.Join(t.TempDir(), "state")
	if err := putNew(path+".new-1", path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("got %v", err)
	}
	if _, err := os.Lstat(path); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("something is left: %v", err)
	}
}
