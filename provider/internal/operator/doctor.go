package operator

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"bigfleet-providers/provider/internal/operator/doctor"
	"bigfleet-providers/provider/internal/operator/terminal"
	"bigfleet-providers/shared/endpoint"
)

// examiner is one run of doctor.
type examiner struct {
	program                     *program
	channel, channelCA, metrics string
	timeout                     time.Duration
	out                         format
}

func (p *program) doctorCommand() *cobra.Command {
	x := &examiner{program: p}
	c := connected(&cobra.Command{
		Use: "doctor [flags]", Short: "Look for what is wrong with a provider, its certificates and its clock",
		Long: `
Every check is a line: OK, WARN or FAIL, what was seen, and below it what to do. It
changes nothing and sends no secret. Exit code 1 if any check is FAIL.

Of the gRPC port: whether it is reached, TLS with chain, name and expiry, what the
client certificate may do, health, and a List. With --channel the same of the
bootstrap channel, as a new server sees it; with --metrics whether the provider is
ready, and what its gauges say. Either of the two shows its clock.
`,
		Example: `
capacityctl doctor --metrics http://127.0.0.1:9090
capacityctl doctor --channel https://provider.example:9443 --channel-ca channel-ca.pem -o json
`,
		Args:              cobra.ArbitraryArgs,
		ValidArgsFunction: cobra.NoFileCompletions,
		RunE: func(c *cobra.Command, args []string) error {
			if err := x.check(args); err != nil {
				return err
			}
			return x.run(c)
		},
	})
	x.declare(c.Flags())
	x.out.declare(c, formatTable, formatJSON)
	return c
}

func (x *examiner) declare(f *pflag.FlagSet) {
	f.StringVar(&x.channel, "channel", "", "`URL` of the bootstrap channel: the provider's --bootstrap-endpoint")
	f.StringVar(&x.channelCA, "channel-ca", "", "PEM `file`: the CA of its certificate, the provider's --bootstrap-ca (default: the system's)")
	f.StringVar(&x.metrics, "metrics", "", "`URL` of the provider's --metrics-addr, such as http://127.0.0.1:9090")
	f.DurationVar(&x.timeout, "timeout", 5*time.Second, "how long each check may take")
}

func (x *examiner) check(args []string) error {
	errs := []error{wantArgs(args), x.program.conn.check(), x.out.check(formatTable, formatJSON), checkTimeout(x.timeout)}
	if x.channel != "" {
		errs = append(errs, checkURL("--channel", x.channel, "https"))
	}
	if x.metrics != "" {
		errs = append(errs, checkURL("--metrics", x.metrics, "http", "https"))
	}
	if x.channelCA != "" && x.channel == "" {
		errs = append(errs, errors.New("--channel-ca: of no use without --channel"))
	}
	return misused(errs...)
}

func checkURL(flag, text string, schemes ...string) error {
	if err := endpoint.Check(text, schemes...); err != nil {
		return fmt.Errorf("%s: %w", flag, err)
	}
	return nil
}

func (x *examiner) run(c *cobra.Command) error {
	conn := &x.program.conn
	t := doctor.Target{
		Addr: conn.addr, Insecure: conn.insecure, ServerName: conn.serverName, Proxy: conn.proxy(), Explain: conn.explain,
		Channel: x.channel, Metrics: x.metrics, Timeout: x.timeout,
	}
	var errs []error
	var err error
	t.Roots, err = readPool("--tls-ca", conn.ca)
	errs = append(errs, err)
	t.ChannelRoots, err = readPool("--channel-ca", x.channelCA)
	errs = append(errs, err)
	if conn.cert != "" {
		pair, err := conn.pair()
		errs = append(errs, err)
		t.Certificate = &pair
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	return conn.with(func(cl *client) error {
		t.Conn = cl.conn
		r := &diagnosis{out: x.program.stdout(), quiet: x.out == formatJSON, findings: []doctor.Finding{}}
		doctor.Examine(c.Context(), t, r.add)
		if x.out == formatJSON {
			r.err = errors.Join(r.err, writeJSON(r.out, r.findings))
		} else {
			r.sum(x)
		}
		if r.err == nil && r.count[doctor.Fail] > 0 {
			return errSaid
		}
		return r.err
	})
}

// diagnosis prints findings as they come.
type diagnosis struct {
	out      *terminal.Output
	quiet    bool
	findings []doctor.Finding
	count    map[doctor.Level]int
	err      error
}

func (d *diagnosis) add(f doctor.Finding) {
	if d.count == nil {
		d.count = map[doctor.Level]int{}
	}
	d.findings = append(d.findings, f)
	d.count[f.Level]++
	if d.quiet {
		return
	}
	style := map[doctor.Level]terminal.Style{doctor.OK: terminal.Green, doctor.Warn: terminal.Yellow, doctor.Fail: terminal.Red}[f.Level]
	lines := []string{fmt.Sprintf("%s  %-18s  %s", d.out.Paint(style, fmt.Sprintf("%-4s", f.Level)), f.Check, printable(f.Detail))}
	for line := range strings.Lines(f.Advice) {
		lines = append(lines, "      "+printable(strings.TrimRight(line, "\n")))
	}
	_, err := fmt.Fprintln(d.out, strings.Join(lines, "\n"))
	d.err = errors.Join(d.err, err)
}

// sum is the last line: how many of each, and what was not looked at.
func (d *diagnosis) sum(x *examiner) {
	checks := "checks"
	if len(d.findings) == 1 {
		checks = "check"
	}
	text := fmt.Sprintf("\n%d %s: %d OK, %d WARN, %d FAIL\n", len(d.findings), checks, d.count[doctor.OK], d.count[doctor.Warn], d.count[doctor.Fail])
	var left []string
	if x.channel == "" {
		left = append(left, "the bootstrap channel (--channel URL)")
	}
	if x.metrics == "" {
		left = append(left, "readiness and gauges (--metrics URL)")
	}
	if x.channel == "" && x.metrics == "" {
		left = append(left, "the clock (either of them)")
	}
	if len(left) > 0 {
		text += "Not looked at: " + strings.Join(left, ", ") + "\n"
	}
	_, err := fmt.Fprint(d.out, text)
	d.err = errors.Join(d.err, err)
}
