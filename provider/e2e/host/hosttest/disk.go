package hosttest

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"bigfleet-providers/provider/internal/fakecloud/nspawn"
)

// Change puts files on a guest's disk before its first boot, by absolute path,
// and takes others away. A content "-> PATH" is a link.
func Change(opts *nspawn.Options, files map[string]string, gone []string) error {
	disk := filepath.Join(opts.Dir, "disk")
	for path, content := range files {
		path = filepath.Join(disk, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if target, ok := strings.CutPrefix(content, "-> "); ok {
			if err := os.Symlink(target, path); err != nil {
				return err
			}
			continue
		}
		if err := os.WriteFile(path, []byte(content), modeOf(content)); err != nil {
			return err
		}
	}
	for _, path := range gone {
		path = filepath.Join(disk, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		// How an overlay says that what is below is not there.
		if err := unix.Mknod(path, unix.S_IFCHR, 0); err != nil {
			return err
		}
	}
	return nil
}
