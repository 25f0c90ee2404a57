package operator

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"bigfleet-providers/provider/internal/operator/terminal"
)

// errNoTerminal says that there is no terminal to ask at.
var errNoTerminal = errors.New("no terminal")

// askedAt is where an answer is typed: standard input or, where that is the
// bootstrap blob, the terminal itself. The caller calls done.
func (p *program) askedAt() (in *os.File, done func(), err error) {
	if !terminal.IsTerminal(p.err) {
		return nil, nil, errNoTerminal
	}
	if in, ok := p.in.(*os.File); ok && terminal.IsTerminal(in) {
		return in, func() {}, nil
	}
	if in, err = os.Open("/dev/tty"); err != nil {
		return nil, nil, err
	}
	return in, func() { in.Close() }, nil
}

// confirmed asks whether to go on. Without a yes it is false, with an error if
// there was no answer at all.
func (p *program) confirmed(ctx context.Context, in *os.File) (bool, error) {
	fmt.Fprint(p.err, "Go on? [y/N] ")
	answer, err := terminal.ReadLine(ctx, in)
	if err != nil {
		fmt.Fprintln(p.err)
		return false, err
	}
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return true, nil
	default:
		return false, nil
	}
}
