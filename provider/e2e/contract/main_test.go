package contract

import (
	"crypto/rand"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"testing"
	"time"
)

var (
	target      = flag.String("target", "", "host:port of the server to test; empty: build bin/scaleway and start it on the fake backend")
	tlsCA       = flag.String("tls-ca", "", "PEM file of the authority that signed the target's certificate; needs -target")
	tlsCert     = flag.String("tls-cert", "", "PEM file of the client certificate, one that may act for any shard; needs -tls-key")
	tlsKey      = flag.String("tls-key", "", "PEM file of the client certificate's key")
	tlsName     = flag.String("tls-server-name", "", "name in the target's certificate, if it is not the host of -target")
	machines    = flag.Int("machines", 12, "how many SPECULATIVE machines of the target may be used, the cheapest first")
	destructive = flag.Bool("destructive", false, "also send the target calls that it should accept: they create, bind, drain and delete its machines")
	settle      = flag.Duration("settle", 30*time.Second, "how long one transition may take")
	substrate   = flag.String("substrate", "instances", "what the provider that is started sells: instances or elastic-metal; not with -target")
	blobFile    = flag.String("blob", "", "file with a bootstrap blob that lets the target's hosts join; empty: a script that does nothing")
)

// checks is the number of runs of each property, unless -rapid.checks is given.
const checks = "15"

var (
	// bin is the folder with the built program; empty with -target.
	bin string
	// run tells this run's shards and unknown ids from those of earlier ones,
	// whose marks the target may still have.
	run = "contract-" + rand.Text()[:10]
	// blob is what every Configure carries.
	blob = []byte("#!/bin/sh\nexit 0\n")
)

func TestMain(m *testing.M) {
	flag.Parse()
	code, err := prepareAndRun(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func prepareAndRun(m *testing.M) (int, error) {
	if err := errors.Join(checkFlags(), boundProperties()); err != nil {
		return 0, err
	}
	if *target != "" {
		err := dialTarget()
		if err != nil {
			return 0, err
		}
		defer shared.conn.Close()
		return m.Run(), nil
	}
	dir, err := os.MkdirTemp("", "bigfleet-contract-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	bin = filepath.Join(dir, "scaleway")
	args := []string{"build", "-o", bin, "./provider/cmd/scaleway"}
	if raced() {
		// A race in the provider ends it, and so the test.
		args = slices.Insert(args, 1, "-race")
	}
	build := exec.Command("go", args...)
	build.Dir = "../../.."
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build of the provider: %w; outside the checkout name a server with -target\n%s", err, out)
	}
	return m.Run(), nil
}

// raced tells whether the tests themselves were built with the race detector.
func raced() bool {
	info, ok := debug.ReadBuildInfo()
	return ok && slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"})
}

func checkFlags() error {
	var errs []error
	if *target == "" && *tlsCA+*tlsCert+*tlsKey+*tlsName+*blobFile != "" {
		errs = append(errs, errors.New("-tls-ca, -tls-cert, -tls-key, -tls-server-name, -blob: only with -target"))
	}
	if (*tlsCert == "") != (*tlsKey == "") {
		errs = append(errs, errors.New("-tls-cert, -tls-key: give both or none"))
	}
	if *tlsCA == "" && *tlsCert+*tlsName != "" {
		errs = append(errs, errors.New("-tls-ca: missing; without it the target is dialled without TLS"))
	}
	if *substrate != "instances" && *substrate != metal {
		errs = append(errs, fmt.Errorf("-substrate: %q, want instances or %s", *substrate, metal))
	}
	if *target != "" && *substrate != "instances" {
		errs = append(errs, errors.New("-substrate: not with -target, which knows itself"))
	}
	if *machines < 1 {
		errs = append(errs, fmt.Errorf("-machines: %d, want at least 1", *machines))
	}
	if *settle <= 0 {
		errs = append(errs, fmt.Errorf("-settle: %s, want more than 0", *settle))
	}
	if *blobFile != "" {
		content, err := os.ReadFile(*blobFile)
		if err != nil {
			errs = append(errs, fmt.Errorf("-blob: %w", err))
		}
		blob = content
	}
	return errors.Join(errs...)
}

// boundProperties keeps the properties short, unless the command line says
// otherwise, and their failures out of the source tree: a server's answers
// depend on more than the random numbers.
func boundProperties() error {
	defaults := map[string]string{"rapid.checks": checks, "rapid.nofailfile": "true", "rapid.shrinktime": "10s"}
	flag.Visit(func(f *flag.Flag) { delete(defaults, f.Name) })
	for name, value := range defaults {
		if err := flag.Set(name, value); err != nil {
			return fmt.Errorf("-%s: %w", name, err)
		}
	}
	return nil
}
