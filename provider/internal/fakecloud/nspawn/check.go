package nspawn

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
)

// Check tells everything that this machine lacks to boot guests.
func Check() error {
	var errs []error
	if os.Geteuid() != 0 {
		errs = append(errs, errors.New("guests in containers need root"))
	}
	for _, p := range []struct{ program, pkg string }{
		{"systemd-nspawn", "systemd-container"}, {"ip", "iproute2"}, {"nsenter", "util-linux"}, {"mount", "mount"},
	} {
		if _, err := exec.LookPath(p.program); err != nil {
			errs = append(errs, fmt.Errorf("%s is not installed: apt-get install %s", p.program, p.pkg))
		}
	}
	if len(errs) == 0 {
		if err := run("", "unshare", "--mount", "--net", "--pid", "--fork", "true"); err != nil {
			errs = append(errs, fmt.Errorf("this machine does not let root make namespaces: %w", err))
		}
	}
	return errors.Join(errs...)
}

// CheckRoot tells whether the folder is a Debian root that a guest can boot
// from.
func CheckRoot(dir string) error {
	for _, program := range []string{"sbin/init", "usr/bin/cloud-init"} {
		if _, err := os.Lstat(filepath.Join(dir, program)); err != nil {
			return fmt.Errorf("%q is no Debian root with systemd and cloud-init, make one with make debian-root: %w", dir, err)
		}
	}
	return nil
}
