package main

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// output is a buffer that a running program may write while the test reads.
type output struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.buf.String()
}

func TestServesUntilToldToStop(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	var out, log output
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, []string{"--addr", "127.0.0.1:0", "--metadata-addr", "127.0.0.1:0", "--scale", "0", "-v"}, &out, &log)
	}()

	var url string
	for deadline := time.Now().Add(10 * time.Second); url == ""; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no greeting: %s", &out)
		}
		if _, rest, found := strings.Cut(out.String(), "export SCW_API_URL="); found && strings.Contains(rest, "SCW_DEFAULT_ZONE=fr-par-1\n") {
			url, _, _ = strings.Cut(rest, "\n")
		}
	}
	httpClient := &http.Client{Transport: &http.Transport{}}
	resp, err := httpClient.Get(url + "/metadata")
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil || resp.Body.Close() != nil || !strings.Contains(string(body), "scw.eu") {
		t.Errorf("%s, %v", body, err)
	}
	_, guests, _ := strings.Cut(out.String(), "Guests find themselves at ")
	guests, _, _ = strings.Cut(guests, ",")
	resp, err = httpClient.Get(guests + "/conf")
	if err != nil {
		t.Fatal(err)
	}
	if resp.Body.Close() != nil || resp.StatusCode != http.StatusMisdirectedRequest {
		t.Errorf("the metadata service answers %d to who is no guest", resp.StatusCode)
	}
	httpClient.CloseIdleConnections()
	stop()
	select {
	case err := <-done:
		if err != nil {
			t.Errorf("run: %v", err)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("still running 10 s after it was told to stop")
	}
	if !strings.Contains(log.String(), "path=/metadata status=200") {
		t.Errorf("log %q", log.String())
	}
}

func TestArguments(t *testing.T) {
	for _, tt := range []struct {
		args []string
		want string // "" for success
	}{
		{[]string{"--help"}, ""},
		{[]string{"extra"}, `"extra"`},
		{[]string{"--hosts", "cattle"}, `--hosts: "cattle"`},
		{[]string{"--scale", "-1"}, "--scale: -1"},
		{[]string{"--scale", "NaN"}, "--scale: NaN"},
		{[]string{"--addr", "nowhere"}, "--addr"},
		{[]string{"--addr", "127.0.0.1:0", "--metadata-addr", "nowhere"}, "--metadata-addr"},
		{[]string{"--flag"}, "--flag"},
		{[]string{"--addr="}, "--addr: given, but empty"},
		{[]string{"--addr=127.0.0.1:0", "--metadata-addr", ""}, "--metadata-addr: given, but empty"},
		{[]string{"--hosts", "cattle", "--scale", "-2"}, "--scale: -2"},
	} {
		var out bytes.Buffer
		err := run(t.Context(), tt.args, &out, io.Discard)
		if tt.want == "" {
			if err != nil || !strings.Contains(out.String(), "--scale") {
				t.Errorf("%v: %v, %s", tt.args, err, out.String())
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%v: %v, want %s", tt.args, err, tt.want)
		}
	}
}

func TestEveryFlagIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../../docs/fakecloud.md")
	if err != nil {
		t.Fatal(err)
	}
	var help bytes.Buffer
	if err := run(t.Context(), []string{"--help"}, &help, io.Discard); err != nil {
		t.Fatal(err)
	}
	names := regexp.MustCompile(`--[a-z-]+|/debug/[a-z]+`).FindAllString(help.String(), -1)
	if len(names) < 10 {
		t.Errorf("found only %q in the help", names)
	}
	for _, name := range names {
		if !bytes.Contains(page, []byte("`"+name)) && !bytes.Contains(page, []byte(" "+name)) {
			t.Errorf("docs/fakecloud.md does not tell of %s", name)
		}
	}
}
