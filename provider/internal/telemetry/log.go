package telemetry

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
)

// Formats of the log.
const (
	FormatText = "text"
	FormatJSON = "json"
)

// NewLogger returns a logger that writes to w in the given format (FormatText
// or FormatJSON) from the given level up ("debug", "info", "warn" or "error").
// It reports both faults at once, each by the flag that it is of. Attributes whose key names a credential are
// blanked, whoever logged them.
func NewLogger(w io.Writer, format, level string) (*slog.Logger, error) {
	var errs []error
	opts := &slog.HandlerOptions{ReplaceAttr: blank}
	switch strings.ToLower(level) {
	case "debug":
		opts.Level = slog.LevelDebug
	case "info":
		opts.Level = slog.LevelInfo
	case "warn":
		opts.Level = slog.LevelWarn
	case "error":
		opts.Level = slog.LevelError
	default:
		errs = append(errs, fmt.Errorf("--log-level: %q is unknown, want debug, info, warn or error", level))
	}
	var h slog.Handler
	switch strings.ToLower(format) {
	case FormatText:
		h = slog.NewTextHandler(w, opts)
	case FormatJSON:
		h = slog.NewJSONHandler(w, opts)
	default:
		errs = append(errs, fmt.Errorf("--log-format: %q is unknown, want %s or %s", format, FormatText, FormatJSON))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return slog.New(h), nil
}

// blank is the last net: no line of this project logs these keys, and a line
// that does one day shows that it tried and not what it held.
func blank(_ []string, a slog.Attr) slog.Attr {
	switch strings.ToLower(a.Key) {
	case "authorization", "blob", "bootstrap_blob", "bootstrap_secret", "password", "secret", "secret_key", "token", "user_data":
		return slog.String(a.Key, "[redacted]")
	}
	return a
}
