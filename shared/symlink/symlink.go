// Package symlink finds the file that a path leads to, so that a file replaced
// by a rename is replaced where it is, and a link to it stays a link.
package symlink

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
)

// maxLinks is how many links the kernel follows, see path_resolution(7).
const maxLinks = 40

// Target follows the links that path itself is, and returns the path of the file
// that they lead to. That file need not exist, as with open(2) and O_CREAT. A path
// that is no link is returned as it is.
func Target(path string) (string, error) {
	at := path
	for range maxLinks {
		info, err := os.Lstat(at)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
			return at, nil // the caller's own call says what is missing
		case err != nil:
			return "", err
		case info.Mode().Type() != fs.ModeSymlink:
			return at, nil
		}
		to, err := os.Readlink(at)
		if err != nil {
			return "", err
		}
		if !filepath.IsAbs(to) {
			// Not filepath.Join: it would take away a ".." that leads through a link.
			to = filepath.Dir(at) + "/" + to
		}
		at = to
	}
	return "", fmt.Errorf("symbolic link %s: %w; it leads back to itself, or through more than %d links", path, syscall.ELOOP, maxLinks)
}
