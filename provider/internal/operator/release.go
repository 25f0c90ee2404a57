package operator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"bigfleet-providers/provider/internal/operator/terminal"
)

// kept is what the provider keeps although no machine uses it, as its admin
// socket says.
type kept struct {
	Hosts  []keptHost  `json:"hosts"`
	Spares []keptSpare `json:"spares"`
}

type keptHost struct {
	MachineID    string    `json:"machine_id"`
	Host         string    `json:"host"`
	Type         string    `json:"type"`
	Cluster      string    `json:"cluster,omitempty"`
	PricePerHour float64   `json:"price_per_hour"`
	Since        time.Time `json:"since"`
	Until        time.Time `json:"until"`
	LastError    string    `json:"last_error"`
	Then         string    `json:"then,omitempty"`
}

type keptSpare struct {
	Host    string    `json:"host"`
	Type    string    `json:"type"`
	Status  string    `json:"status"`
	Created time.Time `json:"created"`
	Since   string    `json:"since"`
	Billing string    `json:"billing"`
	Keep    string    `json:"keep,omitempty"`
}

// releaser is one run of release.
type releaser struct {
	program *program
	socket  *string
	spares  []string
	reason  string
	dryRun  bool
	yes     bool
	out     format
}

func releaseCommand(p *program) *cobra.Command {
	r := &releaser{program: p}
	c := &cobra.Command{
		Use: "release [MACHINE...] --socket PATH [flags]", Short: "Let the kept host of a FAILED machine, or a spare server, go",
		Long: `
Without a machine it lists what is kept and still billed: hosts of machines that
failed while they were bound, for --failed-retention, since workloads may run
there; and spare dedicated servers, which are never given back by themselves.

A released host is torn down at once, with its volumes and addresses, as a Delete
does it; a dedicated server becomes spare. A released spare (--spare) is given
back for good, and its disks are wiped: the list says until when it is paid.

It asks on a terminal, and elsewhere needs --yes. The provider logs who released
what, and the --reason.
`,
		Example: `
capacityctl release --socket /run/bigfleet/admin/socket
capacityctl release m-7 --socket /run/bigfleet/admin/socket --reason "disk broken, no workloads" --yes
capacityctl release --spare fr-par-2/6a1d… --socket /run/bigfleet/admin/socket --reason "offer retired" --dry-run
`,
		Args: cobra.ArbitraryArgs,
	}
	f := c.Flags()
	r.socket = declareSocket(f)
	f.StringSliceVar(&r.spares, "spare", nil, "`host` of a spare dedicated server to give back, as the list names it; repeat it for several")
	f.StringVar(&r.reason, "reason", "", "why, as one line of `text` for the provider's log; must be given")
	f.BoolVar(&r.dryRun, "dry-run", false, "show what would be released, and release nothing")
	f.BoolVarP(&r.yes, "yes", "y", false, "do not ask")
	r.out.declare(c, formatTable, formatJSON)
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := r.check(args); err != nil {
			return err
		}
		return r.run(c.Context(), args)
	}
	return c
}

func (r *releaser) check(ids []string) error {
	errs := []error{wantSocket(*r.socket), r.out.check(formatTable, formatJSON)}
	named := len(ids)+len(r.spares) > 0
	switch {
	case named && r.reason == "" && !r.dryRun:
		errs = append(errs, errors.New("--reason: missing; the provider logs why something is released"))
	case !named && (r.reason != "" || r.yes || r.dryRun):
		errs = append(errs, errors.New("--reason, --yes and --dry-run: of use with a machine or --spare only; without one the kept hosts are listed"))
	}
	if named && r.out == formatJSON {
		errs = append(errs, errors.New("--output json: of use for the list only, without a machine or --spare"))
	}
	return misused(errs...)
}

func (r *releaser) run(ctx context.Context, ids []string) error {
	all, err := r.ask(ctx)
	if err != nil {
		return err
	}
	if len(ids)+len(r.spares) == 0 {
		return r.program.page(func(o *terminal.Output) error {
			if r.out == formatJSON {
				return writeJSON(o, all)
			}
			return printKept(o, all)
		})
	}
	var chosen kept
	var errs []error
	for _, id := range ids {
		at := slices.IndexFunc(all.Hosts, func(h keptHost) bool { return h.MachineID == id })
		if at < 0 {
			errs = append(errs, fmt.Errorf("machine %s has no kept host; capacityctl release --socket %s lists those that have", printable(id), *r.socket))
			continue
		}
		chosen.Hosts = append(chosen.Hosts, all.Hosts[at])
	}
	for _, ref := range r.spares {
		at := slices.IndexFunc(all.Spares, func(s keptSpare) bool { return s.Host == ref })
		switch {
		case at < 0:
			errs = append(errs, fmt.Errorf("no spare server is called %s; capacityctl release --socket %s lists those that are", printable(ref), *r.socket))
		case all.Spares[at].Keep != "":
			errs = append(errs, fmt.Errorf("server %s is not released: %s", printable(ref), printable(all.Spares[at].Keep)))
		default:
			chosen.Spares = append(chosen.Spares, all.Spares[at])
		}
	}
	if err := errors.Join(errs...); err != nil {
		return err // all or none, as far as it can be told
	}
	if err := r.program.page(func(o *terminal.Output) error { return announceKept(o, chosen) }); err != nil || r.dryRun {
		return err
	}
	if err := r.confirm(ctx); err != nil {
		return err
	}
	return r.release(ctx, chosen)
}

// confirm asks on a terminal. Elsewhere nothing is released without --yes.
func (r *releaser) confirm(ctx context.Context) error {
	if r.yes {
		return nil
	}
	in, done, err := r.program.askedAt()
	if err != nil {
		return errors.New("release: nothing was released; without a terminal to ask at, give --yes")
	}
	defer done()
	if confirmed, err := r.program.confirmed(ctx, in); !confirmed {
		return errors.Join(errors.New("release: not confirmed; nothing was released"), err)
	}
	return nil
}

func (r *releaser) ask(ctx context.Context) (all kept, err error) {
	ctx, cancel := context.WithTimeout(ctx, hostTimeout)
	defer cancel()
	err = overSocket(ctx, *r.socket, http.MethodGet, "/kept", func(body io.Reader) error { return json.NewDecoder(body).Decode(&all) })
	return all, err
}

// release releases one after the other: what fails with one hides nothing of the
// others.
func (r *releaser) release(ctx context.Context, chosen kept) error {
	query := "/release?" + url.Values{"reason": {r.reason}}.Encode()
	post := func(path, done string) error {
		ctx, cancel := context.WithTimeout(ctx, hostTimeout)
		defer cancel()
		if err := overSocket(ctx, *r.socket, http.MethodPost, path+query, func(io.Reader) error { return nil }); err != nil {
			return err
		}
		_, err := fmt.Fprintln(r.program.out, done)
		return err
	}
	var errs []error
	for _, h := range chosen.Hosts {
		done := printable(h.MachineID) + ": its host is being removed; the machine stays FAILED until it leaves the list (capacityctl watch)"
		if h.Then != "" {
			done = printable(h.MachineID) + ": its host becomes spare, and bills on"
		}
		errs = append(errs, post("/kept/hosts/"+url.PathEscape(h.MachineID), done))
	}
	for _, s := range chosen.Spares {
		errs = append(errs, post("/kept/spares/"+url.PathEscape(s.Host), printable(s.Host)+": is being given back; "+printable(s.Billing)))
	}
	return errors.Join(errs...)
}

func announceKept(w io.Writer, k kept) error {
	for _, h := range k.Hosts {
		fmt.Fprintf(w, "release %s: host %s, a %s, %.4f USD an hour, kept until %s", printable(h.MachineID), printable(cmp.Or(h.Host, "unknown")), printable(h.Type), h.PricePerHour, h.Until.Format(time.RFC3339))
		if h.Cluster != "" {
			fmt.Fprintf(w, "; workloads of cluster %s may still run there", printable(h.Cluster))
		}
		fmt.Fprintf(w, "\n  it failed: %s\n", printable(h.LastError))
		if h.Then != "" {
			fmt.Fprintf(w, "  then: %s\n", printable(h.Then))
		}
	}
	for _, s := range k.Spares {
		if _, err := fmt.Fprintf(w, "release %s: a %s, %s; it is given back and its disks are wiped\n  it costs %s\n", printable(s.Host), printable(s.Type), printable(s.Status), printable(s.Billing)); err != nil {
			return err
		}
	}
	return nil
}

func printKept(w io.Writer, k kept) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(cells ...string) {
		for i := range cells {
			cells[i] = printable(cmp.Or(cells[i], "-"))
		}
		fmt.Fprintln(table, strings.Join(cells, "\t"))
	}
	if len(k.Hosts) > 0 {
		row("MACHINE", "HOST", "TYPE", "CLUSTER", "USD/HOUR", "KEPT UNTIL")
		for _, h := range k.Hosts {
			row(h.MachineID, h.Host, h.Type, h.Cluster, fmt.Sprintf("%.4f", h.PricePerHour), h.Until.Format(time.RFC3339))
		}
	}
	if len(k.Spares) > 0 {
		if len(k.Hosts) > 0 {
			fmt.Fprintln(table)
		}
		row("SPARE", "TYPE", "STATUS", "SINCE", "BILLED")
		for _, s := range k.Spares {
			billing := s.Billing
			if s.Keep != "" {
				billing += " (" + s.Keep + ")"
			}
			row(s.Host, s.Type, s.Status, s.Since, billing)
		}
	}
	if len(k.Hosts)+len(k.Spares) > 0 {
		fmt.Fprintln(table)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%d kept hosts, %d spare servers\n", len(k.Hosts), len(k.Spares))
	return err
}
