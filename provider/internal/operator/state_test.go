package operator

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"bigfleet-providers/provider/internal/machine"
	"bigfleet-providers/provider/internal/store"
)

var update = flag.Bool("update", false, "write the golden files")

// sealed stands for an encrypted blob: its bytes must not show, in any form.
var sealed = []byte("SEALEDBLOB")

// stateFile writes a state file with a machine of every kind. It is closed.
func stateFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "state.db")
	s, err := store.Open(store.Options{Path: path, Owner: store.Owner{Provider: "certify", Zone: "fr-par-1", Substrate: "instances", Project: "project-1"}})
	if err != nil {
		t.Fatal(err)
	}
	at := time.Date(2020, 3, 4, 5, 6, 7, 0, time.UTC)
	offer := &machine.Offer{InstanceType: "DEV1-S", Zone: "fr-par-1", Capacity: machine.OnDemand, PricePerHour: 0.01, Resources: map[string]string{"cpu": "2"}}
	for i, r := range []machine.Record{
		{ID: "m-free", State: machine.Speculative},
		{ID: "m-busy", State: machine.Configuring, Cluster: "prod", Metadata: map[string]string{"k": "<v>"}, Host: "fr-par-1/1",
			Marks: machine.Marks{}.With("shard-1", machine.Mark{Epoch: 7, Sequence: 8}).With("shard-2", machine.Mark{Epoch: -3, Sequence: 1}), History: machine.History{Create: "op-1", Configure: "op-2"},
			Op: &machine.Operation{ID: "op-2", Kind: machine.Configure, Step: "deliver", Started: at, Deadline: at.Add(15 * time.Minute), StepBegan: at, Sealed: sealed, Ref: "fr-par-1/1"}},
		{ID: "m-lost", State: machine.Failed, LastError: "gone", Leftover: &machine.Leftover{OperationID: "op-3", Ref: "fr-par-1/2", After: at}},
		{ID: "nobody", Marks: machine.Marks{}.With("shard-1", machine.Mark{Epoch: 9, Sequence: 1})},
	} {
		r.Slot, r.Offer, r.Since = r.ID, offer, at.Add(time.Duration(i)*time.Second)
		_, err := s.Do(t.Context(), r.ID, func(machine.Record) (machine.Record, machine.Change, error) {
			if r.State == machine.Unknown {
				return machine.Record{Marks: r.Marks}, machine.Private, nil
			}
			return r, machine.Visible, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, next := range []machine.Next{{Record: machine.Record{State: machine.Failed}, Change: machine.Visible}, {Change: machine.Gone}} {
		_, err := s.Do(t.Context(), "m-gone", func(machine.Record) (machine.Record, machine.Change, error) {
			return next.Record, next.Change, nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return path
}

// golden compares output with a file, but for what differs from run to run.
func golden(t *testing.T, name, got, path string) {
	t.Helper()
	got = strings.ReplaceAll(got, path, "STATE")
	got = regexp.MustCompile(`\b[0-9a-f]{32}\b`).ReplaceAllString(got, "INSTANCE")
	got = regexp.MustCompile(`(STATE, |"bytes": )\d+`).ReplaceAllString(got, "${1}0")
	file := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
}

func TestInspect(t *testing.T) {
	path := stateFile(t)
	for name, args := range map[string][]string{
		"inspect.txt":      nil,
		"inspect.json":     {"--output=json"},
		"record-busy.json": {"--machine=m-busy"},
		"record-mark.json": {"--machine=nobody"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := capacityctl(append([]string{"state", "inspect", path}, args...)...)
			if code != exitOK || stderr != "" {
				t.Fatalf("exit code %d: %s", code, stderr)
			}
			// "U0VBTEVE" begins the blob in base64, "5345414c" in hexadecimal.
			for _, secret := range []string{string(sealed), "U0VBTEVE", "5345414c", fmt.Sprint(sealed[0], sealed[1])} {
				if strings.Contains(strings.ToLower(stdout), strings.ToLower(secret)) {
					t.Errorf("the blob is shown:\n%s", stdout)
				}
			}
			if strings.HasSuffix(name, ".json") && !json.Valid([]byte(stdout)) {
				t.Errorf("no JSON:\n%s", stdout)
			}
			golden(t, name, stdout, path)
		})
	}
	if code, _, stderr := capacityctl("state", "inspect", path, "--machine=else"); code != exitFailed || !strings.Contains(stderr, `"else"`) {
		t.Errorf("exit code %d: %s", code, stderr)
	}
}

func TestCheck(t *testing.T) {
	path := stateFile(t)
	code, stdout, stderr := capacityctl("state", "check", path)
	if code != exitOK || !strings.Contains(stdout, path+" is whole: schema version 1") || !strings.Contains(stdout, "3 machines, 1 operations under way") {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	bad := filepath.Join(t.TempDir(), "bad")
	if err := os.WriteFile(bad, bytes.ReplaceAll(data, []byte("fr-par-1/2"), []byte("fr-par-1/3")), 0o600); err != nil {
		t.Fatal(err)
	}
	code, stdout, stderr = capacityctl("state", "check", bad)
	for _, want := range []string{bad, `"m-lost"`, "checksum", "restore a copy"} {
		if code != exitFailed || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("exit code %d, no %q in: %s%s", code, want, stdout, stderr)
		}
	}
	s, err := store.Open(store.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	code, _, stderr = capacityctl("state", "check", path)
	for _, want := range []string{"locked by another process", fmt.Sprint("pid ", os.Getpid()), "state backup --socket"} {
		if code != exitFailed || !strings.Contains(stderr, want) {
			t.Errorf("exit code %d, no %q in: %s", code, want, stderr)
		}
	}
}

func TestBackupAndRestore(t *testing.T) {
	path := stateFile(t)
	copied := filepath.Join(t.TempDir(), "copy")
	if code, stdout, stderr := capacityctl("state", "backup", path, copied); code != exitOK || !strings.Contains(stdout, "3 machines") {
		t.Fatalf("exit code %d: %s%s", code, stdout, stderr)
	}
	if code, _, stderr := capacityctl("state", "backup", path, copied); code != exitFailed || !strings.Contains(stderr, "exists already") {
		t.Errorf("over another: exit code %d: %s", code, stderr)
	}
	if code, _, stderr := capacityctl("state", "restore", copied, path); code != exitFailed || !strings.Contains(stderr, "--force") {
		t.Errorf("over the state: exit code %d: %s", code, stderr)
	}
	code, stdout, stderr := capacityctl("state", "restore", copied, path, "--force")
	for _, want := range []string{"0 operations under way", path + ".replaced-", "operations dropped: 1"} {
		if code != exitOK || !strings.Contains(stdout, want) {
			t.Errorf("exit code %d, no %q in: %s%s", code, want, stdout, stderr)
		}
	}
	before, err := store.Inspect(copied)
	if err != nil {
		t.Fatal(err)
	}
	if after, err := store.Inspect(path); err != nil || after.Instance == before.Instance || after.Restored.IsZero() {
		t.Errorf("got %+v, %v", after, err)
	}
}

// serveSocket answers every request on a Unix socket.
func serveSocket(t *testing.T, h http.HandlerFunc) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "s")
	ln, err := net.Listen("unix", path)
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: h}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	t.Cleanup(func() {
		srv.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return path
}

func TestOnlineBackup(t *testing.T) {
	data, err := os.ReadFile(stateFile(t))
	if err != nil {
		t.Fatal(err)
	}
	send := func(status, length int, body []byte) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			if r.Method != http.MethodGet || r.URL.Path != "/state/backup" {
				t.Errorf("asked for %s %s", r.Method, r.URL)
			}
			w.Header().Set("Content-Length", fmt.Sprint(length))
			w.WriteHeader(status)
			_, _ = w.Write(body)
		}
	}
	bad := bytes.ReplaceAll(data, []byte("fr-par-1/2"), []byte("fr-par-1/3"))
	file := filepath.Join(t.TempDir(), "file")
	for name, tt := range map[string]struct {
		socket string
		want   string // of the error; "" for success
	}{
		"whole":      {serveSocket(t, send(200, len(data), data)), ""},
		"broken off": {serveSocket(t, send(200, len(data), data[:len(data)/2])), "broke off"},
		"damaged":    {serveSocket(t, send(200, len(bad), bad)), `"m-lost"`},
		"refused":    {serveSocket(t, send(403, 3, []byte("no\n"))), "403 Forbidden"},
		"no socket":  {file, "--admin-socket " + file},
	} {
		t.Run(name, func(t *testing.T) {
			dest := filepath.Join(t.TempDir(), "copy")
			code, stdout, stderr := capacityctl("state", "backup", "--socket", tt.socket, dest)
			if tt.want == "" {
				if got, err := os.ReadFile(dest); code != exitOK || err != nil || !bytes.Equal(got, data) || !strings.Contains(stdout, "3 machines") {
					t.Errorf("exit code %d, %v: %s%s", code, err, stdout, stderr)
				}
				return
			}
			if code != exitFailed || !strings.Contains(stderr, tt.want) {
				t.Errorf("exit code %d, no %q in: %s", code, tt.want, stderr)
			}
			if files, _ := filepath.Glob(dest + "*"); len(files) > 0 {
				t.Errorf("left behind: %v", files)
			}
		})
	}
}
