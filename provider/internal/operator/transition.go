package operator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
	"bigfleet-providers/provider/internal/operator/terminal"
)

// maxBlob is the contract's limit on a bootstrap blob. Judged before the first
// call: a server that is made first would be paid for.
const maxBlob = 1 << 20

// defaultShard is nobody else's: a newer token in the name of a shard of
// BigFleet would fence that shard out.
const defaultShard = "capacityctl"

// defaultTimeout is how long a transition is waited for: longer than any takes
// that ends well, dedicated servers aside.
const defaultTimeout = 45 * time.Minute

// kind is one transition as an operator names it.
type kind struct {
	name       string
	aliases    []string
	begin, end pb.MachineState
	summary    string
	details    string
	example    string
	call       func(context.Context, *client, string, *order) (*pb.TransitionAck, error)
}

// order is what a transition is called with, beside the machine.
type order struct {
	shard           string
	epoch, sequence int64
	cluster         string
	blob            []byte
	metadata        map[string]string
	grace           time.Duration
}

// kinds are the transitions in the order of a machine's life.
var kinds = []kind{
	{
		name: "create", begin: pb.MachineState_MACHINE_STATE_SPECULATIVE, end: pb.MachineState_MACHINE_STATE_IDLE,
		summary: "Make servers for SPECULATIVE machines",
		details: "It makes real servers, which are billed from now on; see walk for a trial that cleans\nup behind itself.",
		example: "capacityctl create m-1 --wait",
		call: func(ctx context.Context, c *client, id string, o *order) (*pb.TransitionAck, error) {
			return c.Create(ctx, &pb.CreateRequest{MachineId: id, ShardId: o.shard, ShardEpoch: o.epoch, SequenceNumber: o.sequence})
		},
	},
	{
		name: "configure", begin: pb.MachineState_MACHINE_STATE_IDLE, end: pb.MachineState_MACHINE_STATE_CONFIGURED,
		summary: "Have IDLE machines join a cluster",
		details: "The bootstrap blob goes to the hosts' hook as it is; it is neither shown nor kept here.",
		example: "capacityctl configure m-1 --cluster prod --blob-file join.sh --wait",
		call: func(ctx context.Context, c *client, id string, o *order) (*pb.TransitionAck, error) {
			return c.Configure(ctx, &pb.ConfigureRequest{
				MachineId: id, ClusterId: o.cluster, BootstrapBlob: o.blob, ShardMetadata: o.metadata,
				ShardId: o.shard, ShardEpoch: o.epoch, SequenceNumber: o.sequence,
			})
		},
	},
	{
		name: "drain", begin: pb.MachineState_MACHINE_STATE_CONFIGURED, end: pb.MachineState_MACHINE_STATE_IDLE,
		summary: "Have CONFIGURED machines leave their cluster",
		details: "It takes a host away from its workloads, which get --grace to leave.",
		example: "capacityctl drain m-1 m-2 --grace 10m --wait",
		call: func(ctx context.Context, c *client, id string, o *order) (*pb.TransitionAck, error) {
			return c.Drain(ctx, &pb.DrainRequest{
				MachineId: id, GracePeriodSeconds: int64(o.grace / time.Second),
				ShardId: o.shard, ShardEpoch: o.epoch, SequenceNumber: o.sequence,
			})
		},
	},
	{
		name: "delete", aliases: []string{"rm"}, begin: pb.MachineState_MACHINE_STATE_IDLE, end: pb.MachineState_MACHINE_STATE_SPECULATIVE,
		summary: "Give the servers of IDLE machines back",
		details: "The machine becomes SPECULATIVE again. A CONFIGURED one must be drained first.\nDedicated servers are not given back so: the call is refused.",
		example: "capacityctl list --state IDLE -o name | xargs -r capacityctl delete --wait",
		call: func(ctx context.Context, c *client, id string, o *order) (*pb.TransitionAck, error) {
			return c.Delete(ctx, &pb.DeleteRequest{MachineId: id, ShardId: o.shard, ShardEpoch: o.epoch, SequenceNumber: o.sequence})
		},
	},
}

// fencing explains the token, for help texts.
const fencing = `
Each call carries a fencing token: --shard, --epoch, --sequence. The default shard
is no shard of BigFleet. A call in the name of one that runs takes the machine
away from it: its next call fails, which pages its operator. With mutual TLS the
client certificate must be bigfleet://shard/SHARD.
`

// transition is one run of create, configure, drain or delete.
type transition struct {
	program *program
	kind    kind
	order   order
	blob    string // --blob-file
	wait    bool
	dryRun  bool
	timeout time.Duration
	socket  *string
	out     format
}

func (p *program) transitionCommand(k kind) *cobra.Command {
	t := &transition{program: p, kind: k}
	c := connected(&cobra.Command{
		Use: k.name + " MACHINE... [flags]", Aliases: k.aliases, Short: k.summary, Example: k.example,
		Long: k.details + `

The provider answers at once and works on; --wait waits for the end, and makes a
failure the exit code 1. A call that is repeated while the transition is under
way, or at its end, is a replay: nothing is started again. To interrupt the
waiting stops nothing.
` + fencing,
		ValidArgsFunction: p.machineIDs(0, k.begin),
		RunE: func(c *cobra.Command, args []string) error {
			t.order.defaultEpoch(c)
			if err := t.check(c, args); err != nil {
				return err
			}
			if err := t.order.readBlob(t.blob, p.in); err != nil {
				return err
			}
			if t.dryRun {
				return p.conn.with(func(cl *client) error { return t.preview(c.Context(), cl, args) })
			}
			return p.conn.with(func(cl *client) error { return t.run(c.Context(), cl, args) })
		},
	})
	f := c.Flags()
	switch k.name {
	case "configure":
		t.order.declareConfigure(p, c, &t.blob)
		f.StringToStringVar(&t.order.metadata, "metadata", nil, "the binding's shard_metadata: `KEY=VALUE`; repeat it")
		f.Lookup("metadata").DefValue = "" // pflag's own, "[]", reads like a value
	case "drain":
		f.DurationVar(&t.order.grace, "grace", 0, "`time` that workloads get to leave, in whole seconds")
	}
	t.order.declareFence(c)
	f.BoolVarP(&t.wait, "wait", "w", false, "wait until the machines have settled, and show how far they are")
	f.DurationVar(&t.timeout, "timeout", defaultTimeout, "with --wait: how long to wait; a dedicated server's Create may take more")
	f.BoolVar(&t.dryRun, "dry-run", false, "show what the call would do to each machine, and call nothing")
	f.BoolP("yes", "y", false, "taken for scripts that give it: this command never asks")
	t.socket = declareSteps(f)
	t.out.declare(c, formatTable, formatJSON)
	return c
}

func (o *order) declareConfigure(p *program, c *cobra.Command, blob *string) {
	c.Flags().StringVar(&o.cluster, "cluster", "", "`id` of the cluster to join")
	c.Flags().StringVar(blob, "blob-file", "", "`file` with the bootstrap blob, - for standard input")
	p.completesWith(c, "cluster", (*pb.Machine).GetCluster)
}

func (o *order) declareFence(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&o.shard, "shard", defaultShard, "shard `id` of the fencing token")
	f.Int64Var(&o.epoch, "epoch", 0, "`epoch` of the fencing token (default: the time, in microseconds)")
	f.Int64Var(&o.sequence, "sequence", 1, "`number` within the epoch")
}

// defaultEpoch is the time: two runs in one second are two reigns.
func (o *order) defaultEpoch(c *cobra.Command) {
	if !c.Flags().Changed("epoch") {
		o.epoch = time.Now().UnixMicro()
	}
}

// check judges the command line: every fault at once, before anything is made.
func (t *transition) check(c *cobra.Command, args []string) error {
	errs := []error{wantMachines(args), t.program.conn.check(), t.out.check(formatTable, formatJSON), t.order.checkFence()}
	if t.kind.name == "configure" {
		errs = append(errs, t.order.checkConfigure(t.blob))
	}
	errs = append(errs, t.order.checkGrace(), checkTimeout(t.timeout))
	if t.dryRun && t.wait {
		errs = append(errs, errors.New("--dry-run and --wait: there is nothing to wait for"))
	}
	if t.dryRun && t.out == formatJSON {
		errs = append(errs, errors.New("--dry-run and --output json: a dry run is for people; capacityctl get -o json shows the machines"))
	}
	if !t.wait && (c.Flags().Changed("timeout") || *t.socket != "") {
		errs = append(errs, errors.New("--timeout and --socket: of use with --wait only"))
	}
	seen := map[string]bool{}
	for _, id := range args {
		if seen[id] {
			errs = append(errs, fmt.Errorf("machine %q is named twice", id))
		}
		seen[id] = true
	}
	return misused(errs...)
}

func (o *order) checkFence() error {
	if o.shard == "" {
		return errors.New("--shard: empty; a call without a fencing token could undo what a shard does")
	}
	return nil
}

func (o *order) checkConfigure(blob string) error {
	var errs []error
	if o.cluster == "" {
		errs = append(errs, errors.New("--cluster: missing; configure binds the machine to it"))
	}
	if blob == "" {
		errs = append(errs, errors.New("--blob-file: missing; configure gives it to the host's hook"))
	}
	return errors.Join(errs...)
}

func (o *order) checkGrace() error {
	if o.grace < 0 || o.grace%time.Second != 0 {
		return fmt.Errorf("--grace: %s, want whole seconds, 0 or more", o.grace)
	}
	return nil
}

func checkTimeout(d time.Duration) error {
	if d <= 0 {
		return fmt.Errorf("--timeout: %s, want more than 0", d)
	}
	return nil
}

// readBlob reads --blob-file, if it is given.
func (o *order) readBlob(path string, stdin io.Reader) error {
	if path == "" {
		return nil
	}
	from := stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return fmt.Errorf("--blob-file: %w", err)
		}
		defer f.Close()
		from = f
	}
	blob, err := io.ReadAll(io.LimitReader(from, maxBlob+1))
	switch {
	case err != nil:
		return fmt.Errorf("--blob-file: %w", err)
	case len(blob) > maxBlob:
		return fmt.Errorf("--blob-file %s: more than %d bytes, the limit of the contract", path, maxBlob)
	}
	o.blob = blob
	return nil
}

// outcome is what became of one machine; it is also the JSON.
type outcome struct {
	MachineID   string          `json:"machine_id"`
	OperationID string          `json:"operation_id,omitempty"`
	Machine     json.RawMessage `json:"machine,omitempty"`
	Error       string          `json:"error,omitempty"`

	err error
}

func (t *transition) run(ctx context.Context, c *client, ids []string) error {
	o := t.program.stdout()
	if t.out == formatJSON {
		o = t.program.stderr() // the answer must stand alone
	}
	d := &driver{client: c, socket: *t.socket, wait: t.wait, timeout: t.timeout, show: newProgress(o, len(ids))}
	outcomes, err := d.each(ctx, t.kind, &t.order, ids)
	errs := []error{err}
	for i := range outcomes {
		errs = append(errs, outcomes[i].err)
	}
	if t.out == formatJSON {
		errs = append(errs, writeJSON(t.program.out, outcomes))
	}
	return errors.Join(errs...)
}

func where(m *pb.Machine) string {
	var b strings.Builder
	if ref := m.GetHost().GetRef(); ref != "" {
		b.WriteString(", host " + printable(ref))
	}
	if c := m.GetCluster(); c != "" {
		b.WriteString(", cluster " + printable(c))
	}
	return b.String()
}

// failedAdvice says what becomes of a failed machine, and what to do.
func failedAdvice(m *pb.Machine) string {
	if m.GetCluster() != "" {
		return "The machine stays FAILED; another id takes its slot. It was bound to cluster " + printable(m.GetCluster()) +
			", so that its host is kept for a while (--failed-retention): look at it with journalctl -u bigfleet-agent, move workloads away, " +
			"and let the host go sooner with capacityctl release " + printable(m.GetId()) + " --socket PATH."
	}
	return "The machine stays FAILED; what it left in the cloud is removed, and another id takes its slot (capacityctl watch). " +
		"Mend the cause first, then take the new id."
}

// settledStyle is green for the end that was wanted.
func settledStyle(err error) (mark string, style terminal.Style) {
	if err != nil {
		return "✗", terminal.Red
	}
	return "✓", terminal.Green
}

// firstLine is the first line of an error.
func firstLine(err error) string {
	line, _, _ := strings.Cut(err.Error(), "\n")
	return cmp.Or(line, "failed")
}
