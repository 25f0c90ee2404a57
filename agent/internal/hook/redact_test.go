package hook_test

import (
	"encoding/base64"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"bigfleet-providers/agent/internal/hook"
)

func TestRedact(t *testing.T) {
	const blob = "#!/bin/sh\n# joins the cluster, with a comment that is long enough\nexport TOKEN=\"abcdef.0123456789abcdef\"\nkubeadm join 10.0.0.1:6443 --token $TOKEN\nok\n"
	r := hook.NewRedactor(secretToken, []byte(blob))
	std := base64.StdEncoding.EncodeToString([]byte(blob))
	tests := []struct{ name, in, want string }{
		{"nothing secret", "E1129 no route to host, exit ok", "E1129 no route to host, exit ok"},
		{"token", "Bearer " + secretToken + ".", "Bearer [redacted]."},
		{"token without padding", strings.TrimRight(secretToken, "="), "[redacted]"},
		{"blob", "<" + blob + ">", "<[redacted]\n>"},
		{"blob without its last line break", "<" + strings.TrimSpace(blob) + ">", "<[redacted]>"},
		{"one line, as set -x shows it", "+ kubeadm join 10.0.0.1:6443 --token $TOKEN", "+ [redacted]"},
		{"one word of a line", "token abcdef.0123456789abcdef is expired", "token [redacted] is expired"},
		{"a short line stays", "ok", "ok"},
		{"base64", std, "[redacted]"},
		{"URL base64", base64.RawURLEncoding.EncodeToString([]byte(blob)), "[redacted]"},
		{"wrapped base64", std[:76] + "\n" + std[76:152] + "\n" + std[152:], "[redacted]\n[redacted]\n[redacted]"},
		{"base64 of a line within something longer", base64.StdEncoding.EncodeToString([]byte("x: abcdef.0123456789abcdef; y")), "eDog[redacted]ZWY7IHk="},
		{"hexadecimal", fmt.Sprintf("%x %X", secretToken, "abcdef.0123456789abcdef"), "[redacted] [redacted]"},
		{"one behind the other", secretToken + secretToken + "!", "[redacted]!"},
		{"one that begins within another", "kubeadm join 10.0.0.1:6443 --token $TOKENabcdef.0123456789abcdef", "[redacted]"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got := r.Redact(tt.in); got != tt.want {
				t.Errorf("Redact(%q) = %q, want %q", tt.in, got, tt.want)
			}
		})
	}
	if got := hook.NewRedactor("", nil).Redact("text"); got != "text" {
		t.Errorf("without secrets: %q", got)
	}
}

// A secret that overlaps another one is cut to its end.
func TestRedactOverlap(t *testing.T) {
	r := hook.NewRedactor("", []byte("first-second-third\nsecond-third-fourth\n"))
	if got := r.Redact("a first-second-third-fourth b"); got != "a [redacted] b" {
		t.Errorf("Redact = %q", got)
	}
	if got := hook.NewRedactor("", []byte("abc")).Redact("xabcy abd"); got != "x[redacted]y abd" {
		t.Errorf("a blob of three bytes: %q", got)
	}
}

// A hook waits for what it prints: with the largest blob, too, megabytes of it
// are a matter of a moment.
func TestRedactLongOutput(t *testing.T) {
	var blob []byte
	for i := 0; len(blob) < 64<<10; i++ {
		blob = fmt.Appendf(blob, "line %d of a large blob 0123456789abcdef%d\n", i, i)
	}
	r := hook.NewRedactor(secretToken, blob)
	line := strings.Repeat("some output ", 6)
	begun := worked(t)
	for range 10 << 20 / len(line) {
		if r.Redact(line) != line {
			t.Fatal("it was cut")
		}
	}
	if took := worked(t) - begun; took > 10*time.Second {
		t.Errorf("10 MiB took %s of a processor", took)
	}
}

// worked is how long processors worked for this process: how long something
// takes on a clock is also a matter of what else the machine does.
func worked(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// The largest blob must not hold up the report of its failure.
func BenchmarkRedactLargeBlob(b *testing.B) {
	var blob []byte
	for i := 0; len(blob) < 1<<20; i++ {
		blob = fmt.Appendf(blob, "line %d of a large blob 0123456789abcdef%d\n", i, i)
	}
	text := strings.Repeat("some output\n", 64<<10/12)
	for b.Loop() {
		hook.NewRedactor(secretToken, blob).Redact(text)
	}
}
