package provider

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"runtime/debug"
	"slices"
)

// part is one long-running part of the process. run returns nil when its
// context ends, and an error or nil earlier only when it cannot go on.
type part struct {
	name string
	run  func(ctx context.Context) error
}

// runParts runs all parts until ctx ends or one of them does. Then it stops
// them one after another in the order given, waiting for each before it turns
// to the next, and returns what went wrong.
func runParts(ctx context.Context, log *slog.Logger, parts []part) error {
	type running struct {
		cancel context.CancelFunc
		done   chan struct{}
		err    error
	}
	ended := make(chan string, len(parts))
	all := make([]*running, len(parts))
	for i, p := range parts {
		own, cancel := context.WithCancel(context.WithoutCancel(ctx))
		r := &running{cancel: cancel, done: make(chan struct{})}
		all[i] = r
		go func() {
			defer close(r.done)
			r.err = guarded(own, p)
			ended <- p.name
		}()
	}
	select {
	case <-ctx.Done():
		log.Info("stopping")
	case name := <-ended:
		log.Error("a part of the process ended; stopping the others", "part", name)
	}
	var errs []error
	for i, r := range all {
		r.cancel()
		<-r.done
		if r.err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", parts[i].name, r.err))
		}
	}
	return errors.Join(errs...)
}

// undo is what a start that fails closes again, the last first.
type undo []func() error

func (u *undo) add(f func() error) { *u = append(*u, f) }

// listener adds the listener that an open has returned, if it has.
func (u *undo) listener(ln net.Listener, err error) (net.Listener, error) {
	if ln != nil {
		u.add(ln.Close)
	}
	return ln, err
}

func (u *undo) run() error {
	var errs []error
	for _, f := range slices.Backward(*u) {
		errs = append(errs, f())
	}
	return errors.Join(errs...)
}

// guarded makes a panic of a part an error of the process, so that the others
// still stop in order.
func guarded(ctx context.Context, p part) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v\n%s", v, debug.Stack())
		}
	}()
	err = p.run(ctx)
	if err == nil && ctx.Err() == nil {
		err = errors.New("ended by itself")
	}
	return err
}
