package operator

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
	"bigfleet-providers/provider/internal/operator/terminal"
)

const statePrefix = "MACHINE_STATE_"

// stateName is a state as operators write it.
func stateName(s pb.MachineState) string { return strings.TrimPrefix(s.String(), statePrefix) }

// parseStates reads states as operators write them, in any case.
func parseStates(names []string) ([]pb.MachineState, error) {
	var out []pb.MachineState
	for _, n := range names {
		v, ok := pb.MachineState_value[statePrefix+strings.ToUpper(n)]
		if !ok || v == 0 {
			return nil, fmt.Errorf("--state: %q is unknown, want one of %s", n, strings.Join(stateNames(), ", "))
		}
		out = append(out, pb.MachineState(v))
	}
	return out, nil
}

func stateNames() []string {
	var out []string
	for v := pb.MachineState_MACHINE_STATE_SPECULATIVE; v <= pb.MachineState_MACHINE_STATE_FAILED; v++ {
		out = append(out, stateName(v))
	}
	return out
}

// orders are the values of --sort. Machines that are equal stay in the
// provider's order, the longest unchanged first.
var orders = map[string]func(a, b *pb.Machine) int{
	"changed": func(*pb.Machine, *pb.Machine) int { return 0 },
	"id":      func(a, b *pb.Machine) int { return cmp.Compare(a.GetId(), b.GetId()) },
	"state":   func(a, b *pb.Machine) int { return cmp.Compare(a.GetState(), b.GetState()) },
	"type":    func(a, b *pb.Machine) int { return cmp.Compare(a.GetInstanceType(), b.GetInstanceType()) },
	"price":   func(a, b *pb.Machine) int { return cmp.Compare(a.GetPricePerHour(), b.GetPricePerHour()) },
	"cluster": func(a, b *pb.Machine) int { return cmp.Compare(a.GetCluster(), b.GetCluster()) },
}

func orderNames() []string {
	var out []string
	for n := range orders {
		out = append(out, n)
	}
	slices.Sort(out)
	return out
}

// tally is "5 machines: 3 SPECULATIVE, 2 IDLE".
func tally(all int, of func(state string) int) string {
	var parts []string
	for _, name := range stateNames() {
		if n := of(name); n > 0 {
			parts = append(parts, fmt.Sprint(n, " ", name))
		}
	}
	text := fmt.Sprint(all, " machines")
	if all == 1 {
		text = "1 machine"
	}
	if len(parts) > 0 {
		text += ": " + strings.Join(parts, ", ")
	}
	return text
}

const capacityPrefix = "CAPACITY_TYPE_"

func capacityName(c pb.CapacityType) string { return strings.TrimPrefix(c.String(), capacityPrefix) }

func capacityNames() []string {
	var out []string
	for v := pb.CapacityType_CAPACITY_TYPE_BARE_METAL; v <= pb.CapacityType_CAPACITY_TYPE_SPOT; v++ {
		out = append(out, capacityName(v))
	}
	return out
}

func pairs(m map[string]string) string {
	var out []string
	for k, v := range m {
		out = append(out, k+"="+v)
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// printJSON prints a message in the JSON of protocol buffers, with the field
// names of the .proto file.
func printJSON(w io.Writer, m proto.Message) error {
	data, err := compactJSON(m)
	if err != nil {
		return err
	}
	var b bytes.Buffer
	if err := json.Indent(&b, data, "", "  "); err != nil {
		return err
	}
	b.WriteByte('\n')
	_, err = w.Write(b.Bytes())
	return err
}

func compactJSON(m proto.Message) ([]byte, error) {
	data, err := protojson.MarshalOptions{UseProtoNames: true}.Marshal(m)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	err = json.Compact(&b, data) // protojson varies its spaces on purpose
	return b.Bytes(), err
}

// printable replaces what would command a terminal instead of being shown.
func printable(s string) string { return terminal.Printable(s) }

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return printable(s)
}

// cut shortens text to at most n characters and marks the cut.
func cut(text string, n int) string {
	runes := []rune(orDash(text))
	if len(runes) <= n {
		return string(runes)
	}
	return string(runes[:n-1]) + "…"
}
