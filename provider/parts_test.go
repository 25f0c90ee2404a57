package provider

import (
	"errors"
	"net"
	"slices"
	"testing"
)

// TestUndo: what a failed start opened is closed, the last first, whatever one of
// them says; what could not be opened is not.
func TestUndo(t *testing.T) {
	var opened undo
	var closed []string
	fails := errors.New("fails")
	for _, name := range []string{"first", "second", "third"} {
		opened.add(func() error {
			closed = append(closed, name)
			if name == "second" {
				return fails
			}
			return nil
		})
	}
	ln, err := opened.listener(net.Listen("tcp", "127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := opened.listener(nil, fails); !errors.Is(err, fails) {
		t.Errorf("the error of an open is %v", err)
	}
	if err := opened.run(); !errors.Is(err, fails) {
		t.Errorf("the error of a close is %v", err)
	}
	if want := []string{"third", "second", "first"}; !slices.Equal(closed, want) {
		t.Errorf("closed %v, want %v", closed, want)
	}
	if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener: %v", err)
	}
}
