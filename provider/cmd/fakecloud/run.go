package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"net/http"
	"runtime"
	"slices"
	"time"

	"github.com/spf13/pflag"
	"golang.org/x/sync/errgroup"

	"bigfleet-providers/provider/internal/fakecloud"
	"bigfleet-providers/provider/internal/fakecloud/host"
	flagcheck "bigfleet-providers/shared/flags"
)

const usage = `Usage: fakecloud [flags]

Serves a stand-in for Scaleway's API (Instances, Block Storage, Marketplace,
Elastic Metal, VPC, IAM, Account) over an inventory in memory, with the timings
of the real one. Everything is gone when it stops. It speaks plain HTTP and asks
nobody who may script it: do not expose it.

  GET  /debug/servers    every server, with its state
  GET  /debug/volumes    every volume
  GET  /debug/metal      every dedicated server
  GET  /debug/leaks      what still bills and has no server
  GET  /debug/calls      the calls so far; ?after=N continues
  GET  /debug/routes     the names of calls, for faults
  POST /debug/faults     make calls fail; GET lists, DELETE removes
  POST /debug/switches   stock, quotas, lags, delays, the state of a server
  POST /debug/guests     which server an address of the metadata service is
  POST /debug/reset      as good as new

Flags:
`

// drainTime bounds how long open requests may take to finish at the end.
const drainTime = 5 * time.Second

// usageError is a command line that cannot be used.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }

// run serves until ctx is done, then lets open requests finish.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	flags := pflag.NewFlagSet("fakecloud", pflag.ContinueOnError)
	flags.SetOutput(io.Discard) // main prints what is wrong, once
	flags.SortFlags = false
	addr := flags.String("addr", "127.0.0.1:8042", "`host:port` to listen on; port 0 picks a free one")
	metadataAddr := flags.String("metadata-addr", "", "`host:port` of the metadata service that guests ask, port 0 picks a free one (default: none)")
	scale := flags.Float64("scale", 1, "factor on every delay: 1 as recorded, 0.02 in a hurry, 0 none at all")
	mode := flags.String("hosts", string(host.None), "what boots when a server is powered on: none, inproc (agents inside this program), process (a directory tree and the real agent for each) or nspawn (a Debian that boots in a container, as root)")
	hostsDir := flags.String("hosts-dir", "", "`folder` for the trees or disks of --hosts=process and nspawn (default: a temporary one)")
	debianRoot := flags.String("debian-root", "", "`folder` that --hosts=nspawn boots from, made by make debian-root")
	agent := flags.String("agent", "", "`path` of bigfleet-agent for --hosts=process (default: beside this program)")
	verbose := flags.BoolP("verbose", "v", false, "log every request, not only what becomes of servers")
	showVersion := flags.Bool("version", false, "print the version")
	err := flags.Parse(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		_, err := fmt.Fprint(stdout, usage, flags.FlagUsages())
		return err
	case err != nil:
		return &usageError{err}
	case *showVersion:
		_, err := fmt.Fprintf(stdout, "fakecloud %s (%s)\n", version, runtime.Version())
		return err
	}
	var faults []error
	for _, fault := range flagcheck.Empty(flags) {
		faults = append(faults, fault)
	}
	if flags.NArg() > 0 {
		faults = append(faults, fmt.Errorf("argument %q: fakecloud takes flags only", flags.Arg(0)))
	}
	if !slices.Contains(host.Modes(), host.Mode(*mode)) {
		faults = append(faults, fmt.Errorf("--hosts: %q is unknown, want one of %q", *mode, host.Modes()))
	}
	if *scale < 0 || math.IsNaN(*scale) || math.IsInf(*scale, 0) {
		faults = append(faults, fmt.Errorf("--scale: %g, want a number of at least 0", *scale))
	}
	if err := errors.Join(faults...); err != nil {
		return &usageError{err}
	}

	level := slog.LevelInfo
	if *verbose {
		level = slog.LevelDebug
	}
	log := slog.New(slog.NewTextHandler(stderr, &slog.HandlerOptions{Level: level}))
	hosts, err := host.Choose(host.Choice{Mode: host.Mode(*mode), Dir: *hostsDir, Agent: *agent, DebianRoot: *debianRoot, Log: log})
	if err != nil {
		return err
	}
	cloud := fakecloud.New(fakecloud.Options{Log: log, Scale: *scale, Hosts: hosts, SSHKeys: []string{fakecloud.SampleSSHKey}})
	defer cloud.Close()
	if booting, ok := hosts.(*host.Nspawn); ok {
		if err := booting.Attach(cloud); err != nil {
			return err
		}
		greetHosts(stdout, booting)
	}

	api, err := listen(ctx, "--addr", *addr)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	if *metadataAddr != "" {
		metadata, err := listen(ctx, "--metadata-addr", *metadataAddr)
		if err != nil {
			return errors.Join(err, api.Close())
		}
		greetGuests(stdout, metadata.Addr())
		group.Go(func() error { return serve(ctx, metadata, cloud.MetadataHandler()) })
	}
	greet(stdout, api.Addr())
	group.Go(func() error { return serve(ctx, api, cloud.Handler()) })
	return group.Wait()
}

func listen(ctx context.Context, flag, addr string) (net.Listener, error) {
	l, err := new(net.ListenConfig).Listen(ctx, "tcp", addr)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	return l, nil
}

func serve(ctx context.Context, listener net.Listener, h http.Handler) error {
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	drain, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainTime)
	defer cancel()
	err := server.Shutdown(drain)
	if errors.Is(err, context.DeadlineExceeded) {
		err = server.Close() // what is still open then waits on a scripted delay
	}
	return errors.Join(err, ignoreClosed(<-served))
}

// ignoreClosed drops the error by which Serve says that it was told to stop.
func ignoreClosed(err error) error {
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// greet tells how to point the vendor's clients here; the key is the fake's
// own and opens nothing else.
func greet(w io.Writer, addr net.Addr) {
	_, _ = fmt.Fprintf(w, `fakecloud listens on %[1]s. For scw, Terraform and anything on Scaleway's SDK:

export SCW_API_URL=http://%[1]s
export SCW_ACCESS_KEY=%[2]s
export SCW_SECRET_KEY=%[3]s
export SCW_DEFAULT_ORGANIZATION_ID=%[4]s
export SCW_DEFAULT_PROJECT_ID=%[5]s
export SCW_DEFAULT_REGION=fr-par
export SCW_DEFAULT_ZONE=fr-par-1
`, addr, fakecloud.DefaultAccessKey, fakecloud.DefaultSecretKey, fakecloud.DefaultOrganizationID, fakecloud.DefaultProjectID)
}

// greetHosts tells how a provider and a person reach the guests.
func greetHosts(w io.Writer, hosts *host.Nspawn) {
	n := hosts.Network()
	_, _ = fmt.Fprintf(w, `Guests reach this machine at %[1]s and [%[2]s], so start the provider with
--bootstrap-addr=%[1]s:8443 --bootstrap-endpoint=https://%[1]s:8443. The log has the
pid of each guest that boots; to enter one, as root: nsenter --target PID --all

`, n.Gateway(), n.Gateway6())
}

// greetGuests tells how a guest asks for itself.
func greetGuests(w io.Writer, addr net.Addr) {
	_, _ = fmt.Fprintf(w, `Guests find themselves at http://%[1]s, each from its own address
("metadata_source" in /debug/servers), user data from a port below 1024:

curl --interface 127.64.0.1 http://%[1]s/conf?format=json
curl --interface 127.64.0.1 --local-port 1-1023 http://%[1]s/user_data/cloud-init

`, addr)
}
