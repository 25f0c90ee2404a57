package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"bigfleet-providers/provider/internal/store"
)

func checkCommand(p *program) *cobra.Command {
	c := &cobra.Command{
		Use: "check FILE", Short: "Verify a state file as the provider does at its start",
		Long: `
FILE is what the provider's --state names, or a copy of it. No provider may run
on it. It checks the structure of the file and every record. Exit code 1 and one
line that names the damage and the way out if the provider would refuse it.
`,
		Args: cobra.ArbitraryArgs,
	}
	c.RunE = func(_ *cobra.Command, args []string) error {
		if err := misused(wantArgs(args, "a state file")); err != nil {
			return err
		}
		c, err := inspect(args[0])
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(p.out, "state file %s is whole: %s\n", args[0], brief(c))
		return err
	}
	return c
}

// inspect is store.Inspect, and tells how to look at a file that is in use.
func inspect(path string) (*store.Contents, error) {
	c, err := store.Inspect(path)
	if errors.Is(err, store.ErrLocked) {
		return nil, fmt.Errorf("%w\nTo look at it while the provider runs, fetch a copy: capacityctl state backup --socket PATH DEST", err)
	}
	return c, err
}

// brief is a file's contents in one line.
func brief(c *store.Contents) string {
	n := 0
	for _, m := range c.Machines {
		if m.Op != nil {
			n++
		}
	}
	return fmt.Sprintf("schema version %d, instance %x, revision %d, %d machines, %d operations under way", c.Version, c.Instance, c.Revision, len(c.Machines), n)
}

func backupCommand(p *program) *cobra.Command {
	c := &cobra.Command{
		Use: "backup FILE DEST | --socket PATH DEST", Short: "Make a verified copy of a state file",
		Long: `
FILE is what the provider's --state names; no provider may run on it. With
--socket, the running provider makes the copy, without a pause; it needs
--admin-socket, and you need to be root or the provider's user. DEST must not
exist, and appears only once it was verified.
`,
		Args: cobra.ArbitraryArgs,
	}
	socket := declareSocket(c.Flags())
	c.RunE = func(c *cobra.Command, args []string) error {
		names := []string{"a state file", "where to put the copy"}
		if *socket != "" {
			names = names[1:]
		}
		if err := misused(wantArgs(args, names...)); err != nil {
			return err
		}
		dest := args[len(args)-1]
		made, err := backup(c.Context(), *socket, args[0], dest)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(p.out, "%s: %d bytes, %s\n", dest, made.Bytes, brief(made))
		return err
	}
	return c
}

func backup(ctx context.Context, socket, file, dest string) (*store.Contents, error) {
	if socket != "" {
		err := store.WriteBackup(dest, func(w io.Writer) error { return fetch(ctx, socket, w) })
		if err != nil {
			return nil, err
		}
		return store.Inspect(dest)
	}
	c, err := store.Backup(file, dest)
	if errors.Is(err, store.ErrLocked) {
		return nil, fmt.Errorf("%w; or let the running provider make the copy: --socket PATH", err)
	}
	return c, err
}

// fetchTimeout bounds an online backup; a gigabyte takes a few seconds.
const fetchTimeout = 10 * time.Minute

// fetch copies the running provider's state file to w.
func fetch(ctx context.Context, socket string, w io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, fetchTimeout)
	defer cancel()
	return overSocket(ctx, socket, http.MethodGet, "/state/backup", func(body io.Reader) error {
		// The length is known, so that a copy that breaks off is an error here.
		if _, err := io.Copy(w, body); err != nil {
			return fmt.Errorf("the copy from %s broke off: %w", socket, err)
		}
		return nil
	})
}

func restoreCommand(p *program) *cobra.Command {
	c := &cobra.Command{
		Use: "restore SRC DEST [flags]", Short: "Make a copy the state file again",
		Long: `
SRC is verified first. DEST must not exist; with --force it is kept under
DEST.replaced-TIME, and no provider may run on it.

The restored file is a lineage of its own, with a new instance id: clients that
hold a revision from before get a full list. Operations that were under way in
the copy are dropped. At its next start the provider waits for the cloud's
inventory: servers that the copy does not know are adopted, and nothing that no
machine claims is deleted for a day. To move the file of a stopped provider to
another host, copy it; restore is for going back.
`,
		Args: cobra.ArbitraryArgs,
	}
	force := c.Flags().Bool("force", false, "replace DEST, and keep it under another name")
	c.RunE = func(_ *cobra.Command, args []string) error {
		if err := misused(wantArgs(args, "a copy", "where the state file belongs")); err != nil {
			return err
		}
		r, err := store.Restore(args[0], args[1], *force, time.Now())
		if err != nil {
			return err
		}
		fmt.Fprintf(p.out, "%s: %s\n", args[1], brief(&r.Contents))
		if r.Replaced != "" {
			fmt.Fprintf(p.out, "the file before is kept: %s\n", r.Replaced)
		}
		if r.Rewound > 0 {
			fmt.Fprintf(p.out, "operations dropped: %d; their machines get their servers back from the cloud's tags\n", r.Rewound)
		}
		return nil
	}
	return c
}
