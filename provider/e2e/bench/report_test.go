package bench

import (
	"encoding/json"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"time"
)

// row is one line of the table.
type row struct {
	Measure  string `json:"measure"`
	Machines int    `json:"machines"`
	Detail   string `json:"detail,omitempty"`
	Result   string `json:"result"`
	Floor    string `json:"floor,omitempty"`
}

var (
	rowsMu sync.Mutex
	rows   []row
)

// record keeps a result; a later run of the same measure replaces it.
func record(measure string, machines int, detail, result, floor string) {
	rowsMu.Lock()
	defer rowsMu.Unlock()
	r := row{measure, machines, detail, result, floor}
	for i, old := range rows {
		if old.Measure == measure && old.Machines == machines && old.Detail == detail {
			rows[i] = r
			return
		}
	}
	rows = append(rows, r)
}

func short(d time.Duration) string {
	switch {
	case d >= time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	case d >= time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
	default:
		return fmt.Sprintf("%d µs", d.Microseconds())
	}
}

func ratio(a, b time.Duration) float64 { return float64(a) / float64(max(b, 1)) }

// report writes what was recorded to the files named by BENCH_MARKDOWN and
// BENCH_JSON.
func report() error {
	if len(rows) == 0 {
		return nil
	}
	if path := os.Getenv("BENCH_JSON"); path != "" {
		out, err := json.MarshalIndent(struct {
			Machine string `json:"machine"`
			Rows    []row  `json:"rows"`
		}{machineName(), rows}, "", "  ")
		if err != nil {
			return err
		}
		if err := os.WriteFile(path, append(out, '\n'), 0o600); err != nil {
			return err
		}
	}
	path := os.Getenv("BENCH_MARKDOWN")
	if path == "" {
		return nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "Measured %s on %s.\n\n", time.Now().UTC().Format(time.DateOnly), machineName())
	b.WriteString("| measure | machines | | result | beside the floor of the same run |\n|---|---|---|---|---|\n")
	for _, r := range rows {
		fmt.Fprintf(&b, "| %s | %d | %s | %s | %s |\n", r.Measure, r.Machines, r.Detail, r.Result, r.Floor)
	}
	return os.WriteFile(path, []byte(b.String()), 0o600)
}

// machineName describes the machine as far as it matters for the figures.
func machineName() string {
	cpu := "unknown CPU"
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		if _, rest, ok := strings.Cut(string(info), "model name"); ok {
			line, _, _ := strings.Cut(rest, "\n")
			cpu = strings.TrimSpace(strings.TrimLeft(line, "\t :"))
		}
	}
	return fmt.Sprintf("%d cores, %s, %s %s/%s, client and server on the same machine", runtime.NumCPU(), cpu, runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
