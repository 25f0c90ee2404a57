package operator

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

// times are what differs between two runs of a view.
var times = regexp.MustCompile(`\b\d\d:\d\d:\d\d(\.\d+)?\b|\d{4}-\d\d-\d\dT[0-9:.]+Z|\(in \w+\)`)

// TestViews compares what commands print with golden files.
func TestViews(t *testing.T) {
	s := &scripted{revision: 7, machines: append(fleet(), walkable()...)}
	s.set(&pb.Machine{Id: "m-5", State: creating, InstanceType: "EM-A", CapacityType: pb.CapacityType_CAPACITY_TYPE_BARE_METAL, Labels: map[string]string{stageLabel: "installing"}})
	addr := serve(t, s, nil)
	now := time.Now()
	socket := operationsSocket(t,
		runningOperation{MachineID: "m-5", OperationID: "op-5", Kind: "Create", Step: "install", Started: now.Add(-3 * time.Hour), Deadline: now.Add(90*time.Minute + 30*time.Second)},
		runningOperation{MachineID: "b", OperationID: "op-6", Kind: "Drain", Started: now.Add(-2 * time.Hour), Deadline: now.Add(-time.Minute)})
	for name, args := range map[string][]string{
		"list.txt":       {"list"},
		"list-wide.txt":  {"list", "-o", "wide", "--sort=price"},
		"list-name.txt":  {"list", "-o", "name", "--type=DEV1-S"},
		"list-steps.txt": {"list", "--state=creating,configured", "--socket", socket, "-o", "wide"},
		"list-color.txt": {"list", "--color=always"},
		"get.txt":        {"get", "a", "b"},
		"get-step.txt":   {"get", "m-5", "--socket", socket},
		"get.json":       {"get", "a", "m-4", "-o", "json"},
		"top.txt":        {"top"},
		"top-steps.txt":  {"top", "--socket", socket},
		"top.json":       {"top", "--socket", socket, "-o", "json", "--type=EM-A"},
	} {
		t.Run(name, func(t *testing.T) {
			code, stdout, stderr := capacityctl(append(args, "--insecure", "--addr="+addr)...)
			if code != exitOK || stderr != "" {
				t.Fatalf("exit code %d: %s", code, stderr)
			}
			golden(t, name, times.ReplaceAllString(stdout, "TIME"), addr)
		})
	}
}

// TestSelection: each filter by itself, and together.
func TestSelection(t *testing.T) {
	s := &scripted{machines: append(fleet(), walkable()...)}
	addr := serve(t, s, nil)
	for line, want := range map[string]string{
		"":                                       "a b c m-1 m-2 m-3 m-4",
		"--state=idle":                           "c m-4",
		"--type=DEV1-S":                          "a b m-2 m-4",
		"--type=DEV1-S,EM-A --state=speculative": "m-2 m-3",
		"--cluster=prod":                         "b",
		"--capacity=bare-metal":                  "m-3",
		"--capacity=On_Demand --zone=fr-par-1":   "m-1 m-2",
		"--label=arch":                           "b",
		"--label=arch=amd64 --label=zone!=y":     "b",
		"--label=arch=arm64":                     "",
		"--label=arch!=amd64 --type=DEV1-S":      "a m-2 m-4",
	} {
		code, stdout, stderr := capacityctl(append(strings.Fields(line), "list", "-o=name", "--insecure", "--addr="+addr)...)
		if got := strings.Join(strings.Fields(stdout), " "); code != exitOK || got != want {
			t.Errorf("list %s: %q (exit code %d, %s), want %q", line, got, code, stderr, want)
		}
	}
}

// TestGetOfMany: an id that is not found hides nothing.
func TestGetOfMany(t *testing.T) {
	addr := serve(t, &scripted{machines: fleet()}, nil)
	code, stdout, stderr := capacityctl("get", "a", "nobody", "b", "-o=json", "--insecure", "--addr="+addr)
	var got struct{ Machines []struct{ ID string } }
	if err := json.Unmarshal([]byte(stdout), &got); err != nil || code != exitFailed || len(got.Machines) != 2 || !strings.Contains(stderr, "get nobody: NOT_FOUND") {
		t.Errorf("exit code %d, %v: %s%s", code, err, stdout, stderr)
	}
}

// TestCompletion asks as a shell does.
func TestCompletion(t *testing.T) {
	s := &scripted{machines: append(fleet(), walkable()...)}
	addr := serve(t, s, nil)
	for line, want := range map[string]string{
		"drain ":                 "b",
		"delete ":                "c m-4",
		"delete c ":              "m-4",
		"walk ":                  "m-1 m-2 m-3",
		"walk m-1 ":              "",
		"get m-":                 "m-1 m-2 m-3 m-4",
		"list --state I":         "IDLE",
		"list --type ":           "DEV1-S EM-A GP1-XS",
		"list --output ":         "json name table wide",
		"configure c --cluster ": "prod",
		"list --color ":          "always auto never",
		"completion ":            "bash fish zsh",
		"sta":                    "state",
		"state ":                 "backup check inspect restore",
	} {
		words := strings.Split(line, " ")
		args := append([]string{"__complete"}, words[:len(words)-1]...)
		if words[0] != "sta" && words[0] != "state" && words[0] != "completion" {
			args = append([]string{"__complete", words[0], "--insecure", "--addr=" + addr}, words[1:len(words)-1]...)
		}
		code, stdout, stderr := capacityctl(append(args, words[len(words)-1])...)
		var got []string
		for l := range strings.Lines(stdout) {
			if value, _, _ := strings.Cut(strings.TrimSpace(l), "\t"); value != "" && !strings.HasPrefix(value, ":") {
				got = append(got, value)
			}
		}
		if prefix := words[len(words)-1]; prefix != "" {
			kept := got[:0]
			for _, g := range got {
				if strings.HasPrefix(g, prefix) { // a shell would filter
					kept = append(kept, g)
				}
			}
			got = kept
		}
		wantList := strings.Fields(want)
		if diff := cmp.Diff(strings.Join(wantList, " "), strings.Join(slices.Sorted(slices.Values(got)), " ")); diff != "" || code != exitOK {
			t.Errorf("%s: exit code %d, %s\n%s", line, code, diff, stderr)
		}
	}
	// Nobody there: nothing, soon, and without an error.
	began := time.Now()
	code, stdout, _ := capacityctl("__complete", "get", "--insecure", "--addr="+freePort(t), "")
	if took := time.Since(began); code != exitOK || strings.TrimSpace(stdout) != ":4" || took > 2*completionTimeout {
		t.Errorf("without a provider: exit code %d after %s, %q", code, took, stdout)
	}
	for _, shell := range []string{"bash", "zsh", "fish"} {
		if code, script, stderr := capacityctl("completion", shell); code != exitOK || !strings.Contains(script, "__complete") {
			t.Errorf("%s: exit code %d, %s", shell, code, stderr)
		}
	}
}

// writes counts them.
type writes struct{ n int }

func (w *writes) Write(p []byte) (int, error) {
	w.n++
	return len(p), nil
}

// TestPagesAreWrittenAtOnce: a reader of the head alone must not end the program
// by a signal, which would be its exit code.
func TestPagesAreWrittenAtOnce(t *testing.T) {
	addr := serve(t, &scripted{machines: fleet()}, nil)
	for _, args := range [][]string{{"list"}, {"list", "-o=name"}, {"list", "-o=json"}, {"get", "a", "b"}, {"top"}} {
		var w writes
		if code := Main("test", append(args, "--insecure", "--addr="+addr), nil, &w, &w); code != exitOK || w.n != 1 {
			t.Errorf("%s: exit code %d, %d writes", args, code, w.n)
		}
	}
}
