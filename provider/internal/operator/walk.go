package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

// maxBlob is the contract's limit on a bootstrap blob. Judged before the first
// step: a server that is made first would be paid for.
const maxBlob = 1 << 20

// defaultShard is nobody else's: a newer token in the name of a shard of
// BigFleet would fence that shard out.
const defaultShard = "capacityctl"

// walkPause is between two looks at a machine that is under way.
const walkPause = 250 * time.Millisecond

var walkCommand = command{
	name: "walk", args: "MACHINE STEP... [flags]", summary: "Drive one machine by hand through create, configure, drain, delete",
	details: `
The steps are made in the order given; each is waited for until it has settled.
They are real: create makes a server that is billed, drain and delete take a
host away from who uses it. A step that is repeated while it is under way, or at
its end, is a replay: nothing is started again.

Each call carries a fencing token: --shard, --epoch and a number that counts up.
The default shard is no shard of BigFleet. To walk in the name of one that runs
takes the machine away from it: its next call fails, which pages its operator.
With mutual TLS the client certificate must be bigfleet://shard/SHARD.
`,
	setup: func(f *pflag.FlagSet) runner {
		var (
			conn connection
			w    walker
			blob string
		)
		f.StringVar(&w.shard, "shard", defaultShard, "shard `id` of the fencing token")
		f.Int64Var(&w.epoch, "epoch", 0, "`epoch` of the fencing token (default: the time, in microseconds)")
		f.StringVar(&w.cluster, "cluster", "", "configure: `id` of the cluster")
		f.StringVar(&blob, "blob-file", "", "configure: `file` with the bootstrap blob, - for standard input")
		f.DurationVar(&w.grace, "grace", 0, "drain: `time` that workloads get to leave, in whole seconds")
		f.DurationVar(&w.timeout, "timeout", 45*time.Minute, "how long to wait for each step")
		conn.declare(f)
		return func(ctx context.Context, s streams, args []string) error {
			if !f.Changed("epoch") {
				w.epoch = time.Now().UnixMicro() // two walks in one second are two reigns
			}
			if err := misused(conn.check(), w.check(args, blob)); err != nil {
				return err
			}
			if blob != "" {
				var err error
				if w.blob, err = readBlob(blob, s.in); err != nil {
					return err
				}
			}
			return conn.with(func(c *client) error {
				w.client, w.out = c, s.out
				return w.walk(ctx, args[1:])
			})
		}
	},
}

// walker makes calls on one machine.
type walker struct {
	client   *client
	out      io.Writer
	id       string
	shard    string
	epoch    int64
	sequence int64
	cluster  string
	blob     []byte
	grace    time.Duration
	timeout  time.Duration
}

// step is one transition as an operator names it.
type step struct {
	name string
	end  pb.MachineState
	call func(*walker, context.Context) (*pb.TransitionAck, error)
}

var steps = []step{
	{"create", pb.MachineState_MACHINE_STATE_IDLE, func(w *walker, ctx context.Context) (*pb.TransitionAck, error) {
		return w.client.Create(ctx, &pb.CreateRequest{MachineId: w.id, ShardId: w.shard, ShardEpoch: w.epoch, SequenceNumber: w.sequence})
	}},
	{"configure", pb.MachineState_MACHINE_STATE_CONFIGURED, func(w *walker, ctx context.Context) (*pb.TransitionAck, error) {
		return w.client.Configure(ctx, &pb.ConfigureRequest{
			MachineId: w.id, ClusterId: w.cluster, BootstrapBlob: w.blob,
			ShardId: w.shard, ShardEpoch: w.epoch, SequenceNumber: w.sequence,
		})
	}},
	{"drain", pb.MachineState_MACHINE_STATE_IDLE, func(w *walker, ctx context.Context) (*pb.TransitionAck, error) {
		return w.client.Drain(ctx, &pb.DrainRequest{
			MachineId: w.id, GracePeriodSeconds: int64(w.grace / time.Second),
			ShardId: w.shard, ShardEpoch: w.epoch, SequenceNumber: w.sequence,
		})
	}},
	{"delete", pb.MachineState_MACHINE_STATE_SPECULATIVE, func(w *walker, ctx context.Context) (*pb.TransitionAck, error) {
		return w.client.Delete(ctx, &pb.DeleteRequest{MachineId: w.id, ShardId: w.shard, ShardEpoch: w.epoch, SequenceNumber: w.sequence})
	}},
}

// findStep returns the step of a name.
func findStep(name string) (step, bool) {
	i := slices.IndexFunc(steps, func(s step) bool { return s.name == name })
	if i < 0 {
		return step{}, false
	}
	return steps[i], true
}

// check judges the command line: every fault at once, before anything is made.
func (w *walker) check(args []string, blob string) error {
	var errs []error
	if len(args) < 2 {
		errs = append(errs, errors.New("it takes a machine's id and one or more of create, configure, drain, delete"))
	}
	if len(args) > 0 {
		w.id = args[0]
		for _, name := range args[1:] {
			if _, ok := findStep(name); !ok {
				errs = append(errs, fmt.Errorf("step %q is unknown, want create, configure, drain or delete", name))
			}
		}
	}
	if slices.Contains(args, "configure") {
		if w.cluster == "" {
			errs = append(errs, errors.New("--cluster: missing; configure binds the machine to it"))
		}
		if blob == "" {
			errs = append(errs, errors.New("--blob-file: missing; configure gives it to the host's hook"))
		}
	}
	if w.shard == "" {
		errs = append(errs, errors.New("--shard: empty; a call without a fencing token could undo what a shard does"))
	}
	if w.epoch < 0 {
		errs = append(errs, fmt.Errorf("--epoch: %d is negative", w.epoch))
	}
	if w.grace < 0 || w.grace%time.Second != 0 {
		errs = append(errs, fmt.Errorf("--grace: %s, want whole seconds, 0 or more", w.grace))
	}
	if w.timeout <= 0 {
		errs = append(errs, fmt.Errorf("--timeout: %s, want more than 0", w.timeout))
	}
	return errors.Join(errs...)
}

func readBlob(path string, stdin io.Reader) ([]byte, error) {
	from := stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, fmt.Errorf("--blob-file: %w", err)
		}
		defer f.Close()
		from = f
	}
	blob, err := io.ReadAll(io.LimitReader(from, maxBlob+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("--blob-file: %w", err)
	case len(blob) > maxBlob:
		return nil, fmt.Errorf("--blob-file %s: more than %d bytes, the limit of the contract", path, maxBlob)
	default:
		return blob, nil
	}
}

func (w *walker) walk(ctx context.Context, names []string) error {
	for _, name := range names {
		s, _ := findStep(name) // checked
		if err := w.step(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) step(ctx context.Context, s step) error {
	began := time.Now()
	w.sequence++
	ack, err := func() (*pb.TransitionAck, error) {
		ctx, cancel := context.WithTimeout(ctx, callTimeout)
		defer cancel()
		return s.call(w, ctx)
	}()
	if err != nil {
		return w.client.how.explain(s.name+" "+w.id, err)
	}
	w.say(s, "accepted, operation %s", ack.GetOperationId())
	m, err := w.settle(ctx, s, ack.GetMachine())
	took := time.Since(began).Round(10 * time.Millisecond)
	switch {
	case err != nil:
		return err
	case m.GetState() == s.end:
		w.say(s, "%s after %s%s", stateName(m.GetState()), took, where(m))
		return nil
	case m.GetState() == pb.MachineState_MACHINE_STATE_FAILED:
		return fmt.Errorf("%s %s: FAILED after %s: %s\n%s", s.name, w.id, took, printable(m.GetLastError()), failedAdvice(m))
	default:
		return fmt.Errorf("%s %s: the machine is %s and not %s: somebody else drives it too", s.name, w.id, stateName(m.GetState()), stateName(s.end))
	}
}

// settle waits until the machine is in a state at rest. A provider that
// restarts meanwhile is waited for: the operation goes on.
func (w *walker) settle(ctx context.Context, s step, m *pb.Machine) (*pb.Machine, error) {
	wait, cancel := context.WithTimeout(ctx, w.timeout)
	defer cancel()
	tick := time.NewTicker(walkPause)
	defer tick.Stop()
	shown, lost := pb.MachineState_MACHINE_STATE_UNSPECIFIED, false
	for {
		if m.GetState() != shown {
			shown = m.GetState()
			if underWay(shown) {
				w.say(s, "%s", stateName(shown))
			}
		}
		if !lost && !underWay(m.GetState()) {
			return m, nil
		}
		select {
		case <-tick.C:
		case <-wait.Done():
			return nil, fmt.Errorf("%s %s: stopped waiting while it is %s (%w); the operation goes on: capacityctl get %s shows it, and the same walk again waits for it",
				s.name, w.id, stateName(m.GetState()), context.Cause(wait), w.id)
		}
		next, err := w.client.get(wait, w.id)
		switch code := status.Code(err); {
		case err == nil:
			m, lost = next, false
		case wait.Err() != nil: // said above
		case code == codes.Unavailable || code == codes.DeadlineExceeded:
			if !lost {
				w.say(s, "the provider does not answer; waiting for it")
			}
			lost = true
		default:
			return nil, w.client.how.explain("get "+w.id, err)
		}
	}
}

func underWay(s pb.MachineState) bool {
	switch s {
	case pb.MachineState_MACHINE_STATE_CREATING, pb.MachineState_MACHINE_STATE_CONFIGURING,
		pb.MachineState_MACHINE_STATE_DRAINING, pb.MachineState_MACHINE_STATE_DELETING:
		return true
	default:
		return false
	}
}

func (w *walker) say(s step, format string, args ...any) {
	fmt.Fprintf(w.out, "%s  %-9s  %s\n", clock(), s.name, fmt.Sprintf(format, args...))
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
			"and delete the server in the cloud's console to get rid of it sooner."
	}
	return "The machine stays FAILED; what it left in the cloud is removed, and another id takes its slot (capacityctl watch). " +
		"Mend the cause first, then walk the new id."
}
