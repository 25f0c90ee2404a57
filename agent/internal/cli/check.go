package cli

import (
	"context"
	"errors"
	"fmt"
	"io"

	"bigfleet-providers/agent"
	"bigfleet-providers/agent/internal/plain"
)

// check prints one line for each thing that must be right.
func check(ctx context.Context, path, version string, out io.Writer) error {
	failed := 0
	for _, f := range agent.Check(ctx, path, version) {
		word := "ok  "
		if f.Err != nil {
			word = "FAIL"
			failed++
		}
		detail := f.Detail
		if f.Err != nil {
			detail = f.Err.Error()
		}
		if _, err := fmt.Fprintf(out, "%s  %-10s  %s\n", word, f.Name, plain.Line(detail)); err != nil {
			return err
		}
	}
	switch failed {
	case 0:
		return nil
	case 1:
		return errors.New("one check failed")
	}
	return fmt.Errorf("%d checks failed", failed)
}
