package command_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"bigfleet-providers/shared/command"
)

var at = time.Date(2026, 11, 29, 12, 0, 0, 0, time.UTC)

func configure() command.Command {
	return command.Command{
		CommandID: "op-1f0c", Kind: command.Configure, MachineID: "scw-fr-par-1-000001", ClusterID: "prod-eu",
		ProviderID: "scaleway://instance/fr-par-1/11111111-1111-1111-1111-111111111111", NodeName: "scw-fr-par-1-000001",
		Blob: []byte("#!/bin/sh\necho join\n"), Deadline: at,
	}
}

func drain() command.Command {
	c := configure()
	c.CommandID, c.Kind, c.Blob, c.GraceSeconds = "op-2a7e", command.Drain, nil, 300
	return c
}

func ack() command.Ack {
	return command.Ack{CommandID: "op-1f0c", OK: true, Started: at, Finished: at.Add(42 * time.Second)}
}

func failedAck() command.Ack {
	a := ack()
	a.OK, a.Error = false, "hook configure: exit status 3: no route to the API server"
	return a
}

// The golden files are what other implementations of the channel read.
func TestGolden(t *testing.T) {
	tests := []struct {
		file    string
		message any
		decode  func(body []byte) (any, error)
	}{
		{"configure.json", configure(), decodeCommand},
		{"drain.json", drain(), decodeCommand},
		{"ack-ok.json", ack(), decodeAck},
		{"ack-failed.json", failedAck(), decodeAck},
	}
	for _, tt := range tests {
		t.Run(tt.file, func(t *testing.T) {
			path := filepath.Join("testdata", tt.file)
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			got, err := json.MarshalIndent(tt.message, "", "  ")
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), string(got)+"\n"); diff != "" {
				t.Errorf("%s (-file +encoded):\n%s", path, diff)
			}
			decoded, err := tt.decode(want)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.message, decoded); diff != "" {
				t.Errorf("%s (-message +decoded):\n%s", path, diff)
			}
		})
	}
}

func decodeCommand(body []byte) (any, error) {
	c, err := command.DecodeCommand(bytes.NewReader(body))
	if c == nil {
		return nil, err
	}
	return *c, err
}

func decodeAck(body []byte) (any, error) {
	a, err := command.DecodeAck(bytes.NewReader(body))
	if a == nil {
		return nil, err
	}
	return *a, err
}

func encode(t *testing.T, v any) []byte {
	t.Helper()
	body, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// with adds a field to a JSON object.
func with(body []byte, field string) []byte {
	return append([]byte("{"+field+","), body[1:]...)
}

func TestUnknownFields(t *testing.T) {
	if _, err := decodeCommand(with(encode(t, configure()), `"from_the_future":{"a":[1]}`)); err != nil {
		t.Errorf("an agent must live with a newer provider: %v", err)
	}
	if _, err := decodeAck(with(encode(t, ack()), `"from_the_future":1`)); err == nil {
		t.Error("the provider takes an ack with an unknown field")
	}
}

func TestNotOneValue(t *testing.T) {
	for name, decode := range map[string]func([]byte) (any, error){"command": decodeCommand, "ack": decodeAck} {
		body := encode(t, configure())
		if name == "ack" {
			body = encode(t, ack())
		}
		for _, bad := range [][]byte{nil, []byte("null"), []byte("[]"), []byte("nonsense"), body[:len(body)/2], append(bytes.Clone(body), "{}"...), append(bytes.Clone(body), 'x')} {
			if _, err := decode(bad); err == nil {
				t.Errorf("%s: %.40q is accepted", name, bad)
			}
		}
		if _, err := decode(append(bytes.Clone(body), " \r\n\t"...)); err != nil {
			t.Errorf("%s: white space after the value: %v", name, err)
		}
	}
}

func TestCommandFaults(t *testing.T) {
	long := strings.Repeat("x", command.MaxIDBytes)
	tests := []struct {
		name   string
		change func(*command.Command)
		faults []string // none: valid
	}{
		{"valid", func(*command.Command) {}, nil},
		{"everything missing", func(c *command.Command) { *c = command.Command{} },
			[]string{"command_id: missing", "machine_id: missing", "cluster_id: missing", "kind:", "deadline: missing"}},
		{"ids at the limit", func(c *command.Command) {
			c.CommandID, c.MachineID, c.ClusterID, c.ProviderID, c.NodeName = long, long, long, long, long
		}, nil},
		{"ids over the limit", func(c *command.Command) {
			c.CommandID, c.MachineID, c.ClusterID, c.ProviderID, c.NodeName = long+"x", long+"x", long+"x", long+"x", long+"x"
		}, []string{"command_id: 257 bytes", "machine_id: 257", "cluster_id: 257", "provider_id: 257", "node_name: 257"}},
		{"no provider id and no node name", func(c *command.Command) { c.ProviderID, c.NodeName = "", "" }, nil},
		{"control characters", func(c *command.Command) { c.CommandID, c.NodeName = "a\nb", "a\x00b" },
			[]string{"command_id: has a control", "node_name: has a control"}},
		{"not UTF-8", func(c *command.Command) { c.ClusterID = "\xff" }, []string{"cluster_id: not UTF-8"}},
		{"unknown kind", func(c *command.Command) { c.Kind, c.Blob = "reboot", nil }, []string{`kind: "reboot" is unknown`}},
		{"blob at the limit", func(c *command.Command) { c.Blob = make([]byte, command.MaxBlobBytes) }, nil},
		{"blob over the limit", func(c *command.Command) { c.Blob = make([]byte, command.MaxBlobBytes+1) }, []string{"blob: 1048577 bytes"}},
		{"empty blob", func(c *command.Command) { c.Blob = nil }, nil},
		{"drain with a blob", func(c *command.Command) { c.Kind = command.Drain }, []string{"blob: only a configure"}},
		{"negative grace", func(c *command.Command) { c.GraceSeconds = -1 }, []string{"grace_seconds: -1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := configure()
			tt.change(&c)
			checkFaults(t, c.Validate(), tt.faults)
		})
	}
}

func TestAckFaults(t *testing.T) {
	tests := []struct {
		name   string
		change func(*command.Ack)
		faults []string
	}{
		{"valid", func(*command.Ack) {}, nil},
		{"ok with an error", func(a *command.Ack) { a.Error = "x" }, []string{"error: set although"}},
		{"failed without an error", func(a *command.Ack) { a.OK = false }, []string{"error: missing"}},
		{"error at the limit", func(a *command.Ack) { a.OK, a.Error = false, strings.Repeat("e", command.MaxErrorBytes) }, nil},
		{"error over the limit", func(a *command.Ack) { a.OK, a.Error = false, strings.Repeat("e", command.MaxErrorBytes+1) }, []string{"error: 4097 bytes"}},
		{"several", func(a *command.Ack) { *a = command.Ack{OK: true, Error: "\xff", Started: at} },
			[]string{"command_id: missing", "error: not UTF-8", "error: set although", "finished: before started"}},
		{"finished at once", func(a *command.Ack) { a.Finished = a.Started }, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			a := ack()
			tt.change(&a)
			checkFaults(t, a.Validate(), tt.faults)
		})
	}
}

// checkFaults wants exactly the given faults, all in one error.
func checkFaults(t *testing.T, err error, want []string) {
	t.Helper()
	if len(want) == 0 {
		if err != nil {
			t.Errorf("unexpected: %v", err)
		}
		return
	}
	if err == nil {
		t.Fatalf("no error, want %q", want)
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != len(want) {
		t.Errorf("%d faults, want %d:\n%v", len(lines), len(want), err)
	}
	for _, w := range want {
		if !strings.Contains(err.Error(), w) {
			t.Errorf("%q is missing in:\n%v", w, err)
		}
	}
}

// A command that is readable but not valid can still be refused by its id.
func TestInvalidCommandIsReturned(t *testing.T) {
	c := configure()
	c.Kind = "reboot"
	got, err := command.DecodeCommand(bytes.NewReader(encode(t, c)))
	if err == nil || got == nil || got.CommandID != c.CommandID {
		t.Errorf("DecodeCommand = %v, %v", got, err)
	}
}

func TestBodyLimits(t *testing.T) {
	// The largest blob fits beside the longest of everything else.
	c := configure()
	c.Blob = bytes.Repeat([]byte{0xff}, command.MaxBlobBytes)
	if _, err := decodeCommand(encode(t, c)); err != nil {
		t.Errorf("a blob at the limit does not travel: %v", err)
	}
	pad := func(body []byte, size int) []byte {
		return append(body, bytes.Repeat([]byte(" "), size-len(body))...)
	}
	tests := []struct {
		name   string
		body   []byte
		decode func([]byte) (any, error)
		limit  int
	}{
		{"command", encode(t, configure()), decodeCommand, command.MaxCommandBytes},
		{"ack", encode(t, ack()), decodeAck, command.MaxAckBytes},
	}
	for _, tt := range tests {
		if _, err := tt.decode(pad(tt.body, tt.limit)); err != nil {
			t.Errorf("%s of %d bytes: %v", tt.name, tt.limit, err)
		}
		if _, err := tt.decode(pad(tt.body, tt.limit+1)); !errors.Is(err, command.ErrTooLarge) {
			t.Errorf("%s of %d bytes: %v, want ErrTooLarge", tt.name, tt.limit+1, err)
		}
	}
}

func FuzzDecodeCommand(f *testing.F) {
	addGolden(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		c, err := command.DecodeCommand(bytes.NewReader(body))
		if err != nil {
			return
		}
		again, err := command.DecodeCommand(bytes.NewReader(encode(t, c)))
		if err != nil {
			t.Fatalf("what was decoded does not decode again: %v", err)
		}
		if !bytes.Equal(again.Blob, c.Blob) || again.CommandID != c.CommandID || !again.Deadline.Equal(c.Deadline) {
			t.Errorf("%+v is not %+v", again, c)
		}
	})
}

func FuzzDecodeAck(f *testing.F) {
	addGolden(f)
	f.Fuzz(func(t *testing.T, body []byte) {
		a, err := command.DecodeAck(bytes.NewReader(body))
		if err != nil {
			return
		}
		if _, err := command.DecodeAck(bytes.NewReader(encode(t, a))); err != nil {
			t.Fatalf("what was decoded does not decode again: %v", err)
		}
	})
}

func addGolden(f *testing.F) {
	f.Helper()
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		f.Fatal("no golden files", err)
	}
	for _, path := range files {
		body, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(body)
	}
}
