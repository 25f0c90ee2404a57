package operator

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"bigfleet-providers/provider/internal/machine"
	"bigfleet-providers/provider/internal/operator/terminal"
	"bigfleet-providers/provider/internal/store"
)

func inspectCommand(p *program) *cobra.Command {
	c := &cobra.Command{
		Use: "inspect FILE [flags]", Short: "Show what a state file holds",
		Long: `
FILE is what the provider's --state names, or a copy of it. No provider may run
on it; of a running one, inspect a backup. It shows no secret: of a bootstrap
blob only the size, and it is encrypted at that.
`,
		Args: cobra.ArbitraryArgs,
	}
	var out format
	id := c.Flags().String("machine", "", "show the whole record of one machine, as JSON; its `id`")
	out.declare(c, formatTable, formatJSON)
	c.RunE = func(_ *cobra.Command, args []string) error {
		if err := misused(wantArgs(args, "a state file"), out.check(formatTable, formatJSON)); err != nil {
			return err
		}
		c, err := inspect(args[0])
		if err != nil {
			return err
		}
		return p.page(func(o *terminal.Output) error {
			switch {
			case *id != "":
				return printRecord(o, c, args[0], *id)
			case out == formatJSON:
				return writeJSON(o, summarise(c))
			default:
				return printSummary(o, args[0], summarise(c), time.Now())
			}
		})
	}
	return c
}

// summary is what inspect shows of a file as a whole.
type summary struct {
	Version    uint64             `json:"schema_version"`
	Owner      *store.Owner       `json:"owner,omitempty"`
	Instance   string             `json:"instance"`
	Restored   *time.Time         `json:"restored,omitempty"`
	Revision   uint64             `json:"revision"`
	Bytes      int64              `json:"bytes"`
	Machines   int                `json:"machines"`
	States     map[string]int     `json:"states"`
	Leftovers  int                `json:"leftovers"`
	Operations []operationSummary `json:"operations"`
	Shards     []shardSummary     `json:"shards"`
	Unknown    int                `json:"unknown_ids_with_marks"`
	Used       int                `json:"slots_with_used_ids"`
}

type operationSummary struct {
	Machine  string    `json:"machine"`
	Kind     string    `json:"kind"`
	ID       string    `json:"operation_id"`
	Step     string    `json:"step,omitempty"`
	Started  time.Time `json:"started"`
	Deadline time.Time `json:"deadline"`
	Blob     int       `json:"sealed_blob_bytes"`
}

// shardSummary is the fencing marks of one shard.
type shardSummary struct {
	Shard    string `json:"shard"`
	Machines int    `json:"marks"`
	Epoch    int64  `json:"newest_epoch"`
}

func summarise(c *store.Contents) summary {
	s := summary{
		Version: c.Version, Instance: fmt.Sprintf("%x", c.Instance), Revision: c.Revision, Bytes: c.Bytes,
		Machines: len(c.Machines), States: map[string]int{}, Operations: []operationSummary{}, Unknown: len(c.Unknown), Used: len(c.Generations),
	}
	if c.Owner != (store.Owner{}) {
		s.Owner = &c.Owner
	}
	if !c.Restored.IsZero() {
		s.Restored = &c.Restored
	}
	shards := map[string]shardSummary{}
	mark := func(marks machine.Marks) {
		for _, m := range marks {
			sh, seen := shards[m.Shard]
			if !seen {
				sh.Epoch = m.Epoch // which may be negative
			}
			shards[m.Shard] = shardSummary{m.Shard, sh.Machines + 1, max(sh.Epoch, m.Epoch)}
		}
	}
	for _, m := range c.Machines {
		s.States[m.State.String()]++
		if m.Leftover != nil {
			s.Leftovers++
		}
		if op := m.Op; op != nil {
			s.Operations = append(s.Operations, operationSummary{m.ID, op.Kind.String(), op.ID, op.Step, op.Started, op.Deadline, len(op.Sealed)})
		}
		mark(m.Marks)
	}
	for _, marks := range c.Unknown {
		mark(marks)
	}
	s.Shards = slices.SortedFunc(maps.Values(shards), func(a, b shardSummary) int { return cmp.Compare(a.Shard, b.Shard) })
	slices.SortFunc(s.Operations, func(a, b operationSummary) int { return a.Deadline.Compare(b.Deadline) })
	return s
}

func printSummary(w io.Writer, path string, s summary, now time.Time) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintf(t, "file\t%s, %d bytes\n", path, s.Bytes)
	fmt.Fprintf(t, "schema\tversion %d; this program writes %d\n", s.Version, store.SchemaVersion())
	if o := s.Owner; o != nil {
		fmt.Fprintf(t, "owner\tprovider %s, zone %s, substrate %s, project %s\n", printable(o.Provider), printable(o.Zone), printable(o.Substrate), printable(o.Project))
	}
	fmt.Fprintf(t, "instance\t%s\n", s.Instance)
	if s.Restored != nil {
		fmt.Fprintf(t, "restored\t%s\n", s.Restored.Format(time.RFC3339))
	}
	fmt.Fprintf(t, "revision\t%d\n", s.Revision)
	fmt.Fprintf(t, "holds\t%s\n", tally(s.Machines, func(state string) int { return s.States[state] }))
	fmt.Fprintf(t, "leftovers\t%d to be removed from the cloud\n", s.Leftovers)
	fmt.Fprintf(t, "unknown ids\t%d with fencing marks\n", s.Unknown)
	fmt.Fprintf(t, "slots\t%d with ids that are not given out again\n", s.Used)
	if len(s.Operations) > 0 {
		fmt.Fprint(t, "\nOPERATION\tMACHINE\tKIND\tSTEP\tSTARTED\tDEADLINE\tSEALED BLOB\n")
		for _, o := range s.Operations {
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%d bytes\n", printable(o.ID), printable(o.Machine), o.Kind, orDash(o.Step),
				o.Started.Format(time.RFC3339), deadline(o.Deadline, now), o.Blob)
		}
	}
	if len(s.Shards) > 0 {
		fmt.Fprint(t, "\nSHARD\tFENCING MARKS\tNEWEST EPOCH\n")
		for _, sh := range s.Shards {
			fmt.Fprintf(t, "%s\t%d\t%d\n", orDash(sh.Shard), sh.Machines, sh.Epoch)
		}
	}
	return t.Flush()
}

// deadline is a time, and how far away it is.
func deadline(at, now time.Time) string {
	if left := at.Sub(now).Round(time.Second); left > 0 {
		return fmt.Sprintf("%s (in %s)", at.Format(time.RFC3339), left)
	}
	return at.Format(time.RFC3339) + " (passed)"
}

func printRecord(w io.Writer, c *store.Contents, path, id string) error {
	i := slices.IndexFunc(c.Machines, func(m machine.Record) bool { return m.ID == id })
	if i >= 0 {
		return writeJSON(w, newRecord(c.Machines[i]))
	}
	if marks, ok := c.Unknown[id]; ok {
		return writeJSON(w, record{ID: id, State: machine.Unknown.String(), Marks: newMarks(marks)})
	}
	return fmt.Errorf("state file %s: no machine %q", path, id)
}

func writeJSON(w io.Writer, v any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(v)
}
