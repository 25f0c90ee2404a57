package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
)

func TestCountReadsTheCloudsPages(t *testing.T) {
	pages := map[string]string{
		"/debug/servers": `[{"id":"s-1","name":"web","zone":"fr-par-1","state":"running"}]`,
		"/debug/volumes": `[{"id":"v-1","name":"root","zone":"fr-par-1"},{"id":"v-2"}]`,
		"/debug/leaks":   `[{"kind":"ip","id":"i-1","name":"203.0.113.9","zone":"fr-par-1","hourly_eur":0.004}]`,
	}
	cloud := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		page, ok := pages[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Write([]byte(page))
	}))
	defer cloud.Close()
	p := &play{stage: &stage{cloudAddr: strings.TrimPrefix(cloud.URL, "http://")}}

	count, err := p.count(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(count.servers) != 1 || len(count.volumes) != 2 || len(count.leaks) != 1 {
		t.Errorf("count: %+v, want 1 server, 2 volumes, 1 leak", count)
	}
	err = count.empty()
	if err == nil {
		t.Fatal("an inventory with a server passed for empty")
	}
	for _, want := range []string{"server web (s-1) in fr-par-1", "volume root (v-1)", "no server uses: ip 203.0.113.9 (i-1)"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q does not name %q", err, want)
		}
	}

	delete(pages, "/debug/leaks")
	if _, err := p.count(t.Context()); err == nil || !strings.Contains(err.Error(), "404") {
		t.Errorf("count without a page: %v, want 404 in it", err)
	}
}

func TestEmptyInventoryIsEmpty(t *testing.T) {
	if err := (inventory{}).empty(); err != nil {
		t.Errorf("empty: %v", err)
	}
}

func TestSearchForTellsWhereASecretIs(t *testing.T) {
	s := &stage{dir: t.TempDir()}
	for name, content := range map[string]string{stateFile: "all is well", "scaleway.log": "the key is hush\n"} {
		if err := os.WriteFile(s.path(name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.searchFor(map[string]string{"key": "quiet"}); err != nil {
		t.Errorf("a secret that is nowhere: %v", err)
	}
	err := s.searchFor(map[string]string{"key": "hush"})
	if err == nil || !strings.HasSuffix(err.Error(), "scaleway.log holds the key") {
		t.Errorf("searchFor: %v, want the log named", err)
	}
}
