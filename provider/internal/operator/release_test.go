package operator

import (
	"fmt"
	"net/http"
	"strings"
	"testing"
)

func TestRelease(t *testing.T) {
	var released []string
	mux := http.NewServeMux()
	mux.HandleFunc("GET /kept", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, `{"hosts":[{"machine_id":"m/1","host":"z/1","type":"DEV1-S","cluster":"prod\u001b","price_per_hour":0.5,"since":"2030-01-01T00:00:00Z","until":"2030-01-02T00:00:00Z","last_error":"drain: no"},
{"machine_id":"m-2","host":"z/2","type":"EM","price_per_hour":0,"since":"2030-01-01T00:00:00Z","until":"2030-01-02T00:00:00Z","last_error":"x","then":"server 2 is a spare"}],
"spares":[{"host":"z/3","type":"EM","status":"ready","since":"2030-01-01T00:00:00Z","billing":"0.333 EUR an hour, until 2030-01-01T01:00:00Z"},
{"host":"z/4","type":"EM","status":"ready","since":"by-hand","billing":"x","keep":"the offerings file names it"}]}`)
	})
	note := func(w http.ResponseWriter, r *http.Request) {
		if r.PathValue("id") == "m-2" {
			http.Error(w, "not now", http.StatusConflict)
			return
		}
		released = append(released, r.PathValue("kind")+" "+r.PathValue("id")+" "+r.URL.Query().Get("reason"))
		w.WriteHeader(http.StatusNoContent)
	}
	mux.HandleFunc("POST /kept/{kind}/{id}/release", note)
	socket := adminSocket(t, mux)
	why := []string{"--reason", "it is & was broken"}
	for _, c := range []struct {
		name string
		args []string
		code int
		want []string
		done []string
	}{
		{"list", nil, exitOK, []string{"m/1", "z/1", "0.5000", "2030-01-02T00:00:00Z", "z/3", "0.333 EUR an hour", "x (the offerings file names it)", "2 kept hosts, 2 spare servers"}, nil},
		{"json", []string{"-o", "json"}, exitOK, []string{`"machine_id": "m/1"`, `"spares": [`}, nil},
		{"dry run", []string{"m/1", "--dry-run"}, exitOK, []string{"release m/1: host z/1", "workloads of cluster prod· may still run", "it failed: drain: no"}, nil},
		{"without a terminal", append([]string{"m/1"}, why...), exitFailed, []string{"nothing was released; without a terminal to ask at, give --yes"}, nil},
		{"one", append([]string{"m/1", "-y"}, why...), exitOK, []string{"m/1: its host is being removed"}, []string{"hosts m/1 it is & was broken"}},
		{"a spare", append([]string{"--spare", "z/3", "-y"}, why...), exitOK, []string{"z/3: is being given back; 0.333 EUR an hour, until"}, []string{"spares z/3 it is & was broken"}},
		{"one is refused", append([]string{"m-2", "m/1", "-y"}, why...), exitFailed, []string{"not now", "m/1: its host is being removed"}, []string{"hosts m/1 it is & was broken"}},
		{"one that must stay", append([]string{"m/1", "--spare", "z/4", "-y"}, why...), exitFailed, []string{"z/4 is not released: the offerings file names it"}, nil},
		{"unknown", append([]string{"m-9", "--spare=z/9", "-y"}, why...), exitFailed, []string{"machine m-9 has no kept host", "no spare server is called z/9"}, nil},
	} {
		released = nil
		code, out, text := capacityctl(append([]string{"release", "--socket", socket}, c.args...)...)
		if code != c.code {
			t.Errorf("%s: exit code %d, want %d", c.name, code, c.code)
		}
		for _, want := range c.want {
			if !strings.Contains(out+text, want) {
				t.Errorf("%s: it does not say %q:\n%s%s", c.name, want, out, text)
			}
		}
		if strings.Contains(out+text, "\x1b") {
			t.Errorf("%s: it commands the terminal: %q", c.name, out)
		}
		if strings.Join(released, "|") != strings.Join(c.done, "|") {
			t.Errorf("%s: released %q, want %q", c.name, released, c.done)
		}
	}
}
