package e2e

import (
	"context"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
	"bigfleet-providers/provider/internal/machine"
	"bigfleet-providers/provider/internal/store"
)

// lives plays the hosts of a provider, one after the other under one id.
type lives struct {
	*provider
	t      *testing.T
	ca     *authority
	client *http.Client
	id     string
}

func (l *lives) dial(bearer, stated string) host {
	addr := l.line(`bootstrap channel.*listen=(\S+)`)[1]
	return host{t: l.t, client: l.client, channel: "https://" + strings.Replace(addr, "127.0.0.1", "localhost", 1), id: l.id, token: bearer, stated: stated}
}

// refused sends all that a host of an earlier life can, and wants nothing but 401.
func (l *lives) refused(what string, commands []string, bearers ...string) {
	l.t.Helper()
	for i, bearer := range bearers {
		for _, stated := range []string{"former", "", "new"} {
			h := l.dial(bearer, stated)
			want := func(request string, code int, header http.Header) {
				l.t.Helper()
				if code != http.StatusUnauthorized || header.Get("Bigfleet-Agent-Token") != "" {
					l.t.Errorf("%s, token %d of host %q, %s: %d %v, want 401", what, i, stated, request, code, header)
				}
			}
			for path, query := range map[string]string{"/v1/command": "", "/v1/packages/agent.deb": ""} {
				code, header, _ := h.do(http.MethodGet, path, query, nil)
				want(path, code, header)
			}
			code, header, _ := h.do(http.MethodGet, "/v1/command", "&wait=60", nil)
			want("a long poll", code, header)
			for _, id := range commands {
				if code := h.ack(id); code != http.StatusUnauthorized {
					l.t.Errorf("%s, token %d of host %q, the report on %s: %d, want 401", what, i, stated, id, code)
				}
			}
		}
	}
}

// arrives has the host heard from until its machine is IDLE.
func (l *lives) arrives(h host) {
	l.t.Helper()
	await(l.t, "IDLE", func() bool {
		h.poll(0)
		time.Sleep(250 * time.Millisecond)
		return l.get(l.id).GetState() == idle
	})
}

// TestFormerHostsAreRefused: the id of a deleted machine goes to another server, and
// the host of before polls on: before the new one does, meanwhile and after it, with
// its first token and a renewed one, over restarts, a new secret and a lost state.
func TestFormerHostsAreRefused(t *testing.T) {
	t.Parallel()
	cloud := start(t, environment(), "fakecloud", "--addr=127.0.0.1:0", "--scale=0.001")
	const secret, next = "canary-bootstrap-secret-0123456789abcdef", "canary-another-secret-0123456789abcdef"
	env := environment(
		"SCW_API_URL="+cloud.line(`SCW_API_URL=(\S+)`)[1], "SCW_ACCESS_KEY="+cloud.line(`SCW_ACCESS_KEY=(\S+)`)[1],
		"SCW_SECRET_KEY="+cloud.line(`SCW_SECRET_KEY=(\S+)`)[1], "SCW_DEFAULT_PROJECT_ID="+cloud.line(`SCW_DEFAULT_PROJECT_ID=(\S+)`)[1],
	)
	ca := newAuthority(t)
	cert, key := ca.pair("channel", nil)
	state := filepath.Join(t.TempDir(), "state.db")
	args := []string{
		"--provider=certify", "--seed-count=1", "--state=" + state, "--log-level=debug",
		"--bootstrap-addr=127.0.0.1:0", "--bootstrap-endpoint=https://localhost:9443", "--bootstrap-tls-cert=" + cert, "--bootstrap-tls-key=" + key,
		"--bootstrap-ca=" + ca.pem, "--agent-install=image",
	}
	l := &lives{t: t, ca: ca, client: ca.trusting(0)}
	run := func(secret, previous string) {
		t.Helper()
		env := append(env, "BIGFLEET_BOOTSTRAP_SECRET="+secret)
		if previous != "" {
			env = append(env, "BIGFLEET_BOOTSTRAP_SECRET_PREVIOUS="+previous)
		}
		l.provider = startProvider(t, env, nil, args...)
	}
	run(secret, "")
	l.id = l.machines(1)[0]
	configure := func(cluster string, blob []byte) {
		t.Helper()
		if err := l.send(&pb.ConfigureRequest{MachineId: l.id, ClusterId: cluster, BootstrapBlob: blob}); err != nil {
			t.Fatal(err)
		}
	}

	// The first life, with all that a host can get to know in one.
	first := l.must("Create", l.id, token{}, unspecified)
	former := l.dial(channelToken(secret, l.id, first), "former")
	l.arrives(former)
	configure("c1", []byte("canary-blob-one"))
	_, joined := former.poll(30)
	former.ack(fmt.Sprint(joined["command_id"]))
	if _, err := l.await(l.id, configured); err != nil {
		t.Fatal(err)
	}
	left := l.must("Drain", l.id, token{}, unspecified)
	former.poll(30)
	former.ack(left)
	if _, err := l.await(l.id, idle); err != nil {
		t.Fatal(err)
	}
	commands := []string{fmt.Sprint(joined["command_id"]), left}
	bearers := []string{former.token, plainToken(secret, l.id), channelToken(next, l.id, first), plainToken(next, l.id), channelToken(secret, l.id, "")}
	parked := make(chan int, 1)
	go func() {
		code, _ := former.poll(60)
		parked <- code
	}()
	await(t, "the parked poll", func() bool { return l.counter(t, "bigfleet_scaleway_channel_parked_polls") == 1 })
	began := time.Now()
	l.must("Delete", l.id, token{}, unspecified)
	l.refused("right after the Delete", commands, bearers...)
	if code := <-parked; code != http.StatusUnauthorized || time.Since(began) > 10*time.Second {
		t.Errorf("the poll that was parked: %d after %s, want 401 at once", code, time.Since(began))
	}
	if _, err := l.await(l.id, speculative); err != nil {
		t.Fatal(err)
	}
	l.refused("of a free slot", commands, bearers...)

	// The second one: the former host is first.
	second := l.must("Create", l.id, token{}, unspecified)
	l.refused("during the Create", commands, bearers...)
	await(t, "the wait for the new host", func() bool { return strings.Count(l.text(), "step=first-contact") >= 2 })
	l.refused("before the new host", commands, bearers...)
	if m := l.get(l.id); m.GetState() != creating {
		t.Fatalf("the former host counts as contact: %s", m.GetState())
	}
	fresh := l.dial(channelToken(secret, l.id, second), "new")
	l.arrives(fresh)
	l.refused("while the new host polls", commands, bearers...)
	configure("c2", []byte("canary-blob-two"))
	l.refused("while a blob is pending", commands, bearers...)
	code, pending := fresh.poll(30)
	if code != http.StatusOK || pending["cluster_id"] != "c2" {
		t.Fatalf("the new host's command: %d %v", code, pending)
	}
	l.refused("while the new host works", append(commands, fmt.Sprint(pending["command_id"])), bearers...)
	if code := fresh.ack(fmt.Sprint(pending["command_id"])); code != http.StatusOK {
		t.Errorf("the new host's report: %d", code)
	}
	if _, err := l.await(l.id, configured); err != nil {
		t.Fatal(err)
	}

	// Another process, another secret: a renewal stays within the life.
	l.kill()
	run(next, secret)
	l.refused("under a new secret", commands, bearers...)
	fresh = l.dial(fresh.token, "new")
	if code, header, _ := fresh.do(http.MethodGet, "/v1/command", "", nil); code != http.StatusNoContent || header.Get("Bigfleet-Agent-Token") != channelToken(next, l.id, second) {
		t.Errorf("the new host gets %d and token %q", code, header.Get("Bigfleet-Agent-Token"))
	}

	// The state is lost: what the server says is that it is of the second life.
	l.kill()
	if err := os.Remove(state); err != nil {
		t.Fatal(err)
	}
	run(next, secret)
	if _, err := l.await(l.id, configured); err != nil {
		t.Fatal(err)
	}
	l.refused("after a loss of the state", commands, bearers...)
	fresh = l.dial(channelToken(next, l.id, second), "new")
	if code, _ := fresh.poll(0); code != http.StatusNoContent {
		t.Errorf("the adopted host gets %d, want 204", code)
	}
	if log := l.text(); strings.Contains(log, former.token) || strings.Contains(log, fresh.token) {
		t.Error("the log holds a token")
	}
}

// TestUpgradeKeepsHosts: hosts whose life an earlier release began have a token that
// says nothing of it. They keep it until their machine's Delete, and the next life
// of the id has one of its own.
func TestUpgradeKeepsHosts(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	path := filepath.Join(t.TempDir(), "state.db")
	args := channelArgs(ca, "--state="+path)
	a := newTarget(t, ca, []string{"BIGFLEET_BOOTSTRAP_SECRET=" + attackSecret}, args...)
	l := &lives{provider: a.provider, t: t, ca: ca, client: ca.trusting(0), id: a.ids[0]}
	rest, under, freed := a.ids[0], a.ids[1], a.ids[2]
	of := func(id string) host {
		l.id = id
		return l.dial(plainToken(attackSecret, id), "host of "+id)
	}
	for _, id := range []string{rest, freed} {
		a.must("Create", id, token{}, unspecified)
		l.arrives(of(id))
	}
	a.must("Create", under, token{}, unspecified)
	await(t, "the wait for a host", func() bool {
		return strings.Count(a.text(), "transition done") >= 2 && a.get(under).GetState() == creating
	})
	a.must("Delete", freed, token{}, speculative)
	a.kill()
	withoutLives(t, path, rest, under, freed)

	a = newTarget(t, ca, []string{"BIGFLEET_BOOTSTRAP_SECRET=" + attackSecret}, args...)
	l.provider = a.provider
	if code, _ := of(rest).poll(0); code != http.StatusNoContent {
		t.Errorf("the host of a machine at rest gets %d, want 204", code)
	}
	l.arrives(of(under))
	if code, _ := of(freed).poll(0); code != http.StatusUnauthorized {
		t.Errorf("the host of a deleted machine gets %d, want 401", code)
	}
	for _, id := range []string{rest, under, freed} {
		old := of(id)
		if id != freed {
			a.must("Delete", id, token{}, speculative)
		}
		life := a.must("Create", id, token{}, unspecified)
		l.refused("after the upgrade, in the next life", nil, old.token)
		l.arrives(l.dial(channelToken(attackSecret, id, life), "new"))
		l.refused("after the upgrade, beside the new host", nil, old.token)
	}
}

// withoutLives makes the records of a state file what releases before lives wrote.
func withoutLives(t *testing.T, path string, ids ...string) {
	t.Helper()
	st, err := store.Open(store.Options{Path: path})
	if err != nil {
		t.Fatal(err)
	}
	for _, id := range ids {
		if _, err := st.Do(context.Background(), id, func(cur machine.Record) (machine.Record, machine.Change, error) {
			next := cur.Clone()
			next.Bound = false
			return next, machine.Private, nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
}
