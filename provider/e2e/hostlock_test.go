package e2e

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

// TestTokenIsTiedToItsHost: over restarts of the provider, until an operator or a
// new server says otherwise; and through a change of the bootstrap secret.
func TestTokenIsTiedToItsHost(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	dir := t.TempDir()
	socket := filepath.Join(dir, "admin.sock")
	args := channelArgs(ca, "--state="+filepath.Join(dir, "state.db"), "--admin-socket="+socket, "--log-level=debug")
	secret := func(s string) string { return "BIGFLEET_BOOTSTRAP_SECRET=" + s }
	a := newTarget(t, ca, []string{secret(attackSecret)}, args...)
	id, life := a.ids[0], ""
	pollFrom := func(host, secret string) (int, http.Header) {
		t.Helper()
		time.Sleep(250 * time.Millisecond) // the machine's rate
		header := http.Header{"Authorization": {"Bearer " + channelToken(secret, id, life)}}
		if host != "" {
			header.Set("Bigfleet-Agent-Host", host)
		}
		code, headers, _ := a.ask(t, http.MethodGet, "/v1/command", id, header, nil)
		return code, headers
	}
	want := func(what string, code, want int) {
		t.Helper()
		if code != want {
			t.Errorf("%s: %d, want %d", what, code, want)
		}
	}
	create := func(host string) {
		t.Helper()
		life = a.must("Create", id, token{}, unspecified)
		await(t, "IDLE", func() bool {
			pollFrom(host, attackSecret)
			return a.get(id).GetState() == idle
		})
	}
	create("canary-host-one")
	if err := a.send(&pb.ConfigureRequest{MachineId: id, ClusterId: "c", BootstrapBlob: []byte("canary-blob")}); err != nil {
		t.Fatal(err)
	}
	for name, host := range map[string]string{"a second host": "canary-host-two", "one without an id": ""} {
		code, _ := pollFrom(host, attackSecret)
		want(name, code, http.StatusForbidden)
	}
	a.line(`level=WARN msg="refused a second host`)
	if got := a.counter(t, "bigfleet_scaleway_channel_contested_machines"); got != 1 {
		t.Errorf("%v contested machines, want 1", got)
	}
	if out := mustCtl(t, "1 contested", "host", "list", "--socket", socket, "--contested"); !strings.Contains(out, id) {
		t.Errorf("host list: %s", out)
	}
	a.kill()
	a = newTarget(t, ca, []string{secret(attackSecret)}, args...)
	code, _ := pollFrom("canary-host-two", attackSecret) // faster than the machine's own
	want("a second host after a restart", code, http.StatusForbidden)
	await(t, "the command", func() bool { code, _ := pollFrom("canary-host-one", attackSecret); return code == http.StatusOK })

	mustCtl(t, "the next host that polls", "host", "unlock", "--socket", socket, id)
	code, _ = pollFrom("canary-host-two", attackSecret)
	want("another host after the unlock, about a command that the first one took", code, http.StatusNoContent)
	code, _ = pollFrom("canary-host-one", attackSecret)
	want("the first host after the unlock", code, http.StatusForbidden)
	refusedCtl(t, []string{"no such machine"}, "host", "unlock", "--socket", socket, "nobody")

	// A new bootstrap secret. The host keeps its old token until it is handed the
	// new one.
	const next = "canary-another-secret-0123456789abcdef"
	a.kill()
	a = newTarget(t, ca, []string{secret(next), "BIGFLEET_BOOTSTRAP_SECRET_PREVIOUS=" + attackSecret}, args...)
	code, headers := pollFrom("canary-host-one", attackSecret)
	want("the old token from a second host", code, http.StatusForbidden)
	if headers.Get("Bigfleet-Agent-Token") != "" {
		t.Error("a second host is handed the new token")
	}
	await(t, "the sealed blob of the old secret", func() bool {
		code, headers = pollFrom("canary-host-two", attackSecret)
		return code == http.StatusOK
	})
	if got := headers.Get("Bigfleet-Agent-Token"); got != channelToken(next, id, life) {
		t.Errorf("the host is handed %q, want its new token", got)
	}
	mustCtl(t, "1 with the previous secret", "host", "list", "--socket", socket, "--previous")
	code, _ = pollFrom("canary-host-two", next)
	want("the new token", code, http.StatusOK)
	mustCtl(t, "0 with the previous secret", "host", "list", "--socket", socket)
	log := a.text()
	a.kill()
	a = newTarget(t, ca, []string{secret(next)}, args...)
	code, _ = pollFrom("canary-host-two", attackSecret)
	want("the old token after the rollout", code, http.StatusUnauthorized)
	// The command waits for the lifecycle, the token does not.
	if code, _ = pollFrom("canary-host-two", next); code != http.StatusOK && code != http.StatusNoContent {
		t.Errorf("the new token after the rollout: %d", code)
	}
	hidden := canaries{"host id": "canary-host-two", "secret": attackSecret, "next secret": next, "token": channelToken(next, id, life), "blob": "canary-blob"}
	hidden.in(t, "the log", []byte(log+a.text()))
	hidden.inFiles(t, dir, filepath.Join(dir, "state.db.fake"))
}
