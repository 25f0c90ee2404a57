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
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"bigfleet-providers/provider/internal/operator/terminal"
)

// hostTimeout bounds a question about hosts.
const hostTimeout = 30 * time.Second

// seenHost is what the provider says about a machine's host.
type seenHost struct {
	MachineID      string    `json:"machine_id"`
	LastSeen       time.Time `json:"last_seen,omitzero"`
	Version        string    `json:"version,omitempty"`
	LockedTo       string    `json:"locked_to,omitempty"`
	PreviousSecret bool      `json:"previous_secret"`
	Stranger       *stranger `json:"stranger,omitempty"`
}

// stranger is a second host that used the machine's token.
type stranger struct {
	Host    string    `json:"host,omitempty"`
	Remote  string    `json:"remote"`
	Version string    `json:"version,omitempty"`
	First   time.Time `json:"first"`
	Last    time.Time `json:"last"`
	Count   int       `json:"count"`
}

func hostListCommand(p *program) *cobra.Command {
	c := &cobra.Command{
		Use: "list --socket PATH [flags]", Short: "Show which hosts use the machines' tokens",
		Long: `
Each machine's token is tied to the host that used it first. SECOND HOST is
another one that used it and is refused, with its address and the number of its
requests. SECRET is "previous" while a host uses a token of the secret before
(--bootstrap-secret-previous). Only hosts that were heard from since the provider
started are shown; agents poll once a minute.
`,
		Args: cobra.ArbitraryArgs,
	}
	f := c.Flags()
	var as format
	as.declare(c, formatTable, formatJSON)
	socket := declareSocket(f)
	contested := f.Bool("contested", false, "only machines with a second host")
	previous := f.Bool("previous", false, "only machines that use the previous secret")
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := misused(wantArgs(args), wantSocket(*socket), as.check(formatTable, formatJSON)); err != nil {
			return err
		}
		hosts, err := askHosts(c.Context(), *socket)
		if err != nil {
			return err
		}
		shown := make([]seenHost, 0, len(hosts))
		for _, h := range hosts {
			if (!*contested || h.Stranger != nil) && (!*previous || h.PreviousSecret) {
				shown = append(shown, h)
			}
		}
		return p.page(func(o *terminal.Output) error {
			if as == formatJSON {
				return writeJSON(o, shown)
			}
			return printHosts(o, shown)
		})
	}
	return c
}

func hostUnlockCommand(p *program) *cobra.Command {
	c := &cobra.Command{
		Use: "unlock --socket PATH MACHINE", Short: "Let another host of a machine use its token",
		Long: `
After a host lost its state directory or was installed anew, it is a second host
to the provider. This unties the machine's token: the next host that polls gets
it. Stop the one that must not, first: see capacityctl host list.
`,
		Args: cobra.ArbitraryArgs,
	}
	socket := declareSocket(c.Flags())
	c.RunE = func(c *cobra.Command, args []string) error {
		if err := misused(wantArgs(args, "a machine's id"), wantSocket(*socket)); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(c.Context(), hostTimeout)
		defer cancel()
		discard := func(io.Reader) error { return nil }
		if err := overSocket(ctx, *socket, http.MethodPost, "/hosts/"+url.PathEscape(args[0])+"/unlock", discard); err != nil {
			return err
		}
		_, err := fmt.Fprintf(p.out, "%s: the next host that polls gets its token\n", printable(args[0]))
		return err
	}
	return c
}

func wantSocket(socket string) error {
	if socket == "" {
		return errors.New("--socket: missing; it is what the provider's --admin-socket names")
	}
	return nil
}

func askHosts(ctx context.Context, socket string) (hosts []seenHost, err error) {
	ctx, cancel := context.WithTimeout(ctx, hostTimeout)
	defer cancel()
	err = overSocket(ctx, socket, http.MethodGet, "/hosts", func(body io.Reader) error {
		return json.NewDecoder(body).Decode(&hosts)
	})
	return hosts, err
}

func printHosts(w io.Writer, hosts []seenHost) error {
	contested, previous := 0, 0
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "MACHINE\tHOST\tLAST SEEN\tAGENT\tSECRET\tSECOND HOST")
	for _, h := range hosts {
		secret, second, seen := "present", "", "never"
		if h.PreviousSecret {
			secret = "previous"
			previous++
		}
		if st := h.Stranger; st != nil {
			second = fmt.Sprintf("%s from %s, %d requests, last %s", cmp.Or(st.Host, "without an id"), st.Remote, st.Count, st.Last.UTC().Format(time.RFC3339))
			contested++
		}
		if !h.LastSeen.IsZero() {
			seen = h.LastSeen.UTC().Format(time.RFC3339)
		}
		cells := []string{h.MachineID, cmp.Or(h.LockedTo, "any"), seen, cmp.Or(h.Version, "unknown"), secret, cmp.Or(second, "none")}
		for i := range cells {
			cells[i] = printable(cells[i])
		}
		fmt.Fprintln(table, strings.Join(cells, "\t"))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%d hosts: %d contested, %d with the previous secret\n", len(hosts), contested, previous)
	return err
}
