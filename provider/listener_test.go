package provider

import (
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"
)

// TestListenerCloseHangsUpOnTheSilent: the connection that never spoke is
// closed with its listener, the one that did goes on.
func TestListenerCloseHangsUpOnTheSilent(t *testing.T) {
	ln, err := listen(t.Context(), "addr", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	pair := func(word string) (client, server net.Conn) {
		t.Helper()
		client, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { client.Close() })
		if server, err = ln.Accept(); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { server.Close() })
		deadline := time.Now().Add(10 * time.Second)
		if err := errors.Join(client.SetDeadline(deadline), server.SetDeadline(deadline)); err != nil {
			t.Fatal(err)
		}
		if word != "" {
			if _, err := io.WriteString(client, word); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(server, make([]byte, len(word))); err != nil {
				t.Fatal(err)
			}
		}
		return client, server
	}
	silent, _ := pair("")
	speaks, server := pair("hello")
	if err := ln.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := silent.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the silent connection: %v, want EOF", err)
	}
	if _, err := io.WriteString(server, "ok"); err != nil {
		t.Error(err)
	}
	if _, err := io.ReadFull(speaks, make([]byte, 2)); err != nil {
		t.Errorf("the connection that spoke: %v", err)
	}
	if n := len(ln.(*listener).silent); n != 1 {
		t.Errorf("%d connections are kept in mind, want the silent one until its server closes it", n)
	}
}

func TestTakenPortSaysWhatToDo(t *testing.T) {
	ln, err := listen(t.Context(), "addr", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	if _, err := listen(t.Context(), "addr", ln.Addr().String()); err == nil || !strings.Contains(err.Error(), "name another address") {
		t.Errorf("got %v", err)
	}
}
