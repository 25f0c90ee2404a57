package operator

import (
	"context"
	"errors"
	"fmt"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
	"bigfleet-providers/provider/internal/operator/terminal"
)

// preview is --dry-run: what the call would do to each machine, as far as the
// list tells. The fencing token is the provider's to judge.
func (t *transition) preview(ctx context.Context, c *client, ids []string) error {
	var errs []error
	err := t.program.page(func(o *terminal.Output) error {
		for _, id := range ids {
			m, err := c.get(ctx, id)
			if err == nil {
				err = t.foresee(o, m)
			} else {
				err = c.how.explain("get "+printable(id), err)
			}
			errs = append(errs, err)
		}
		_, err := fmt.Fprintln(o, "dry run: nothing was called")
		return err
	})
	return errors.Join(append(errs, err)...)
}

// foresee says what becomes of one machine, or why nothing would.
func (t *transition) foresee(o *terminal.Output, m *pb.Machine) error {
	k, state := t.kind, m.GetState()
	if k.name == "delete" && dedicated(m) {
		return fmt.Errorf("delete %s: a dedicated server is not given back; the call would be refused", printable(m.GetId()))
	}
	switch state {
	case k.begin:
		text := fmt.Sprintf("%s %s: %s -> %s%s", k.name, printable(m.GetId()), stateName(state), stateName(k.end), where(m))
		switch k.name {
		case "create":
			cost := price(m) + " USD an hour"
			if dedicated(m) {
				cost = "a dedicated server, which costs what its offer says and is not given back"
			}
			text += fmt.Sprintf("; %s: %s", orDash(m.GetInstanceType()), cost)
		case "configure":
			text += "; joins cluster " + printable(t.order.cluster)
		case "drain":
			text += fmt.Sprintf("; its workloads get %s to leave", t.order.grace)
		case "delete":
			text += fmt.Sprintf("; the server is given back, %s USD an hour", price(m))
		}
		_, err := fmt.Fprintln(o, text)
		return err
	case during(k), k.end:
		_, err := fmt.Fprintf(o, "%s %s: it is %s; the call may be a replay, which starts nothing\n", k.name, printable(m.GetId()), stateName(state))
		return err
	default:
		return fmt.Errorf("%s %s: it is %s; the call would be refused: it takes a machine that is %s", k.name, printable(m.GetId()), stateName(state), stateName(k.begin))
	}
}
