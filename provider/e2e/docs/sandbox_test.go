package docs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// inSandbox tells the test binary that it is the sandbox's first process. Its
// value is the script to become.
const inSandbox = "BIGFLEET_DOCS_SANDBOX"

// hosts is the sandbox's /etc/hosts: the pages' names are this machine's.
const hosts = "127.0.0.1 localhost provider.example channel.fleet.example\n"

// enter makes the network and the names that the pages take for granted, and
// becomes bash on the script. It runs in namespaces of its own, so that the
// pages' ports are free, and nothing that they start outlives them.
func enter(script string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("private mounts: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("/proc: %w", err)
	}
	if err := unix.Mount(filepath.Join(filepath.Dir(script), "hosts"), "/etc/hosts", "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("/etc/hosts: %w", err)
	}
	socket, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	loopback, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	loopback.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(socket, unix.SIOCSIFFLAGS, loopback); err != nil {
		return fmt.Errorf("loopback: %w", err)
	}
	bash, err := exec.LookPath("bash")
	if err != nil {
		return err
	}
	if err := os.Unsetenv(inSandbox); err != nil {
		return err
	}
	return unix.Exec(bash, []string{"bash", script}, os.Environ())
}

// errNoNamespaces says that the kernel gives this user no namespaces.
var errNoNamespaces = errors.New("no namespaces for this user")

// sandboxExit is the exit code of a first process that could not enter.
const sandboxExit = 93

// run runs a script in a sandbox; dir is its home and working folder.
func run(t *testing.T, dir, script string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	if err := os.WriteFile(filepath.Join(filepath.Dir(script), "hosts"), []byte(hosts), 0o644); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Dir = dir
	cmd.Env = []string{
		inSandbox + "=" + script, "HOME=" + dir, "LANG=C.UTF-8",
		"PATH=" + filepath.Join(dir, ".stand-ins") + ":" + filepath.Join(dir, "bin") + ":" + os.Getenv("PATH"),
	}
	flags := uintptr(unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID)
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags, Pdeathsig: syscall.SIGKILL}
	if os.Getuid() != 0 {
		cmd.SysProcAttr.Cloneflags |= unix.CLONE_NEWUSER
		cmd.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}
		cmd.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}
	}
	out, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); errors.Is(err, unix.EPERM) || ok && exit.ExitCode() == sandboxExit {
		return fmt.Errorf("%w: %w\n%s", errNoNamespaces, err, out)
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("after two minutes: %w", ctx.Err())
	}
	if err != nil {
		return fmt.Errorf("%w\n%s", err, out)
	}
	return nil
}

// TestSandbox: commands that fail are not taken for ones that worked, and what a
// script leaves running does not outlive it.
func TestSandbox(t *testing.T) {
	dir, out := t.TempDir(), t.TempDir()
	script := filepath.Join(out, "script")
	for commands, want := range map[string]bool{
		"{\ntrue\n} >/dev/null":                                  true,
		"{\nfalse | true\ntrue\n}":                               false,
		"{\necho $undefined\n}":                                  false,
		"sleep 1000 & await $! /etc/hosts provider.example":      true,
		"sleep 0 & await $! /etc/hosts 'what no file has in it'": false,
	} {
		if err := os.WriteFile(script, []byte(prelude+commands), 0o600); err != nil {
			t.Fatal(err)
		}
		err := run(t, dir, script)
		if errors.Is(err, errNoNamespaces) {
			t.Skip(err)
		}
		if (err == nil) != want {
			t.Errorf("%q: %v", commands, err)
		}
	}
}
