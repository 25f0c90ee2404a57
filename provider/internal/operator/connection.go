package operator

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
	"bigfleet-providers/shared/endpoint"
	"bigfleet-providers/shared/pemfile"
)

// maxAnswer bounds what is received at once. A List of 100,000 machines has
// about 35 MB, far above gRPC's own limit.
const maxAnswer = 512 << 20

// callTimeout bounds one call; none of them waits for a cloud.
const callTimeout = 30 * time.Second

// connection is how a provider is reached.
type connection struct {
	addr          string
	ca, cert, key string
	serverName    string
	insecure      bool

	flags *pflag.FlagSet // that declare has added to
	empty error          // about flags of the command that were given without a value
}

// environmentPrefix and a flag's name in capitals are the variable that is read
// when the flag is not given.
const environmentPrefix = "CAPACITYCTL_"

// secure are the flags that --insecure contradicts.
var secure = []string{"tls-ca", "tls-cert", "tls-key", "tls-server-name"}

func (c *connection) declare(f *pflag.FlagSet) {
	c.flags = f
	f.StringVar(&c.addr, "addr", "127.0.0.1:9000", "`address` of the provider's gRPC port (env CAPACITYCTL_ADDR)")
	f.StringVar(&c.ca, "tls-ca", "", "PEM `file`: the CA that the provider's certificate must chain to (default: the system's; env CAPACITYCTL_TLS_CA)")
	f.StringVar(&c.cert, "tls-cert", "", "PEM `file`: the certificate to present (mTLS; env CAPACITYCTL_TLS_CERT)")
	f.StringVar(&c.key, "tls-key", "", "PEM `file`: its key (env CAPACITYCTL_TLS_KEY)")
	f.StringVar(&c.serverName, "tls-server-name", "", "`name` in the provider's certificate, where it differs from --addr (env CAPACITYCTL_TLS_SERVER_NAME)")
	f.BoolVar(&c.insecure, "insecure", false, "plaintext, for a provider without --tls-cert (env CAPACITYCTL_INSECURE)")
}

// unused refuses the flags of a connection for a command that makes none: who
// gives them expects that it asks a provider.
func (c *connection) unused(cmd *cobra.Command) error {
	if isConnected(cmd) || !cmd.HasParent() {
		return nil
	}
	var errs []error
	for _, name := range append([]string{"addr", "insecure"}, secure...) {
		if c.flags.Changed(name) {
			errs = append(errs, fmt.Errorf("--%s: %s makes no call to a provider; leave it out", name, cmd.CommandPath()))
		}
	}
	return errors.Join(errs...)
}

// fromEnvironment sets the flags that were not given. What contradicts a given
// flag is left out: the environment speaks of the usual provider, the command
// line of this one.
func (c *connection) fromEnvironment() error {
	given := func(name string) bool { return c.flags.Changed(name) }
	names := []string{"addr"}
	if !given("insecure") || !c.insecure {
		names = append(names, secure...)
	}
	if !slices.ContainsFunc(secure, given) && !given("insecure") {
		names = append(names, "insecure")
	}
	var errs []error
	values := map[string]string{}
	for _, name := range names {
		value, ok := os.LookupEnv(variable(name))
		switch {
		case !ok || given(name):
		case value == "":
			errs = append(errs, fmt.Errorf("--%s: %s is set, but empty; give it a value, or unset it", name, variable(name)))
		default:
			values[name] = value
		}
	}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		// Only --insecure can refuse a value here; the others are any text.
		if err := c.flags.Set(name, values[name]); err != nil {
			errs = append(errs, fmt.Errorf("%s: %q, want true or false", variable(name), values[name]))
		}
	}
	return errors.Join(errs...)
}

func variable(flag string) string {
	return environmentPrefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// check reads the environment for what the flags left out, judges both, and
// reports every fault at once.
func (c *connection) check() error {
	errs := []error{c.empty, c.fromEnvironment()}
	if err := endpoint.Address(c.addr); err != nil && c.addr != "" {
		errs = append(errs, fmt.Errorf("--addr: %w", err))
	}
	if c.insecure && (c.ca != "" || c.cert != "" || c.key != "" || c.serverName != "") {
		errs = append(errs, errors.New("--insecure: contradicts --tls-ca, --tls-cert, --tls-key and --tls-server-name; leave it out for TLS"))
	}
	if (c.cert == "") != (c.key == "") {
		errs = append(errs, errors.New("--tls-cert and --tls-key: only one is set; they are needed together"))
	}
	return errors.Join(errs...)
}

// dial makes a client; it connects at the first call. The caller closes it.
func (c *connection) dial() (*client, error) {
	creds, err := c.credentials()
	if err != nil {
		return nil, err
	}
	conn, err := grpc.NewClient(c.addr, grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)))
	if err != nil {
		return nil, fmt.Errorf("--addr %s: %w", c.addr, err)
	}
	return &client{pb.NewCapacityProviderClient(conn), conn, c}, nil
}

func (c *connection) credentials() (credentials.TransportCredentials, error) {
	if c.insecure {
		return insecure.NewCredentials(), nil
	}
	cfg := &tls.Config{MinVersion: tls.VersionTLS12, ServerName: c.serverName}
	var errs []error
	var err error
	cfg.RootCAs, err = readPool("--tls-ca", c.ca)
	errs = append(errs, err)
	if c.cert != "" {
		pair, err := c.pair()
		errs = append(errs, err)
		cfg.Certificates = []tls.Certificate{pair}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return credentials.NewTLS(cfg), nil
}

// pair reads the certificate to present.
func (c *connection) pair() (tls.Certificate, error) {
	cert, certErr := os.ReadFile(c.cert)
	if certErr != nil {
		certErr = fmt.Errorf("--tls-cert: %w", certErr)
	}
	key, keyErr := os.ReadFile(c.key)
	if keyErr != nil {
		keyErr = fmt.Errorf("--tls-key: %w", keyErr)
	}
	if err := errors.Join(certErr, keyErr); err != nil {
		return tls.Certificate{}, err
	}
	return pemfile.KeyPair("--tls-cert "+c.cert, "--tls-key "+c.key, cert, key)
}

// readPool reads the CAs of a file; nil, the system's, without one.
func readPool(flag, path string) (*x509.CertPool, error) {
	if path == "" {
		return nil, nil
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flag, err)
	}
	pool, err := pemfile.Pool(content)
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w", flag, path, err)
	}
	return pool, nil
}

// client is a provider as a client sees it.
type client struct {
	pb.CapacityProviderClient
	conn *grpc.ClientConn
	how  *connection
}

func (c *client) close() error { return c.conn.Close() }

// with runs a function with a client and closes it.
func (c *connection) with(f func(*client) error) error {
	cl, err := c.dial()
	if err != nil {
		return err
	}
	return errors.Join(f(cl), cl.close())
}

// get reads a machine; the error is the call's own.
func (c *client) get(ctx context.Context, id string) (*pb.Machine, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	return c.Get(ctx, &pb.MachineRef{Id: id})
}

func (c *client) list(ctx context.Context, filter *pb.ListFilter) (*pb.MachineList, error) {
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	l, err := c.List(ctx, filter)
	return l, c.how.explain("list", err)
}
