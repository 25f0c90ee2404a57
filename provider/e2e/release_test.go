package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

// TestRelease lets the host of a machine go that failed while it was bound, by
// the operator's word; of a dedicated server, first to the spares and then back
// to the cloud.
func TestRelease(t *testing.T) {
	t.Parallel()
	for substrate, more := range map[string][]string{
		"instances":     {"--zone=fr-par-1"},
		"elastic-metal": {"--substrate=elastic-metal", "--zone=fr-par-2"},
	} {
		t.Run(substrate, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			if err := os.Chmod(dir, 0o700); err != nil {
				t.Fatal(err)
			}
			socket := filepath.Join(dir, "admin.sock")
			p := startProvider(t, environment(), nil, append(more, "--use-fake-backend", "--provider=certify", "--fake-hosts=process", "--seed-count=2",
				"--state="+filepath.Join(dir, "state.db"), "--admin-socket="+socket)...)
			id := p.machines(1)[0]
			mustCtl(t, "0 kept hosts, 0 spare servers", "release", "--socket="+socket)
			p.must("Create", id, token{}, idle)
			if err := p.send(&pb.ConfigureRequest{MachineId: id, ClusterId: "c", BootstrapBlob: []byte("#!/bin/sh\nexit 3\n")}); err != nil {
				t.Fatal(err)
			}
			m, _ := p.await(id, failed)
			host := m.GetHost().GetRef()
			if m.GetState() != failed || host == "" {
				t.Fatalf("the machine is %v", m)
			}

			mustCtl(t, "1 kept hosts", "release", "--socket="+socket)
			mustCtl(t, "workloads of cluster c may still run there", "release", id, "--socket="+socket, "--dry-run")
			refusedCtl(t, []string{"give --yes"}, "release", id, "--socket="+socket, "--reason=x")
			mustCtl(t, "1 kept hosts", "release", "--socket="+socket)
			mustCtl(t, id+": its host", "release", id, "--socket="+socket, "--reason=nothing runs there", "--yes")
			refusedCtl(t, []string{"has no kept host"}, "release", id, "--socket="+socket, "--reason=again", "--yes")
			log := p.text()
			for _, want := range []string{`msg="an operator released the host of a failed machine"`, id, `reason="nothing runs there"`, "uid="} {
				if !strings.Contains(log, want) {
					t.Errorf("the log lacks %q", want)
				}
			}
			if substrate == "instances" {
				return
			}

			var kept struct {
				Spares []struct{ Host, Billing string }
			}
			waitFor(t, "the server spare", func() bool {
				if err := json.Unmarshal([]byte(mustCtl(t, "spares", "release", "--socket="+socket, "--output=json")), &kept); err != nil {
					t.Fatal(err)
				}
				return len(kept.Spares) == 1
			})
			if s := kept.Spares[0]; s.Host != host || !strings.Contains(s.Billing, "an hour") {
				t.Errorf("the spare: %+v, want host %s", s, host)
			}
			mustCtl(t, "is being given back", "release", "--spare="+host, "--socket="+socket, "--reason=offer retired", "--yes")
			waitFor(t, "no spare left", func() bool {
				code, out := capacityctl(t, "release", "--socket="+socket)
				return code == 0 && strings.Contains(out, "0 spare servers")
			})
		})
	}
}

// waitFor polls for up to half a minute.
func waitFor(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(30 * time.Second); !done(); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("waited in vain for: %s", what)
		}
	}
}
