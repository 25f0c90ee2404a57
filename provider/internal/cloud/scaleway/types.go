package scaleway

import (
	"strconv"
	"strings"

	"bigfleet-providers/provider/internal/cloud"
)

// The labels on types, and what prices are in.
const (
	archLabel        = "kubernetes.io/arch"
	acceleratorLabel = "bigfleet.io/accelerator"
	nvidiaResource   = "nvidia.com/gpu"
	currency         = "EUR"
)

// Hardware is what servers of a type have.
type Hardware struct {
	Arch   string // as Kubernetes names it
	CPUs   uint64
	Memory uint64 // bytes
	GPUs   uint64
	// Nvidia is the GPUs' model. GPUs without one are not promised: the resource
	// they appear under depends on who made them.
	Nvidia string
}

// Type describes a type of servers that cost so many EUR an hour, 0 for unknown.
func (h Hardware) Type(name string, perHour float64) cloud.Type {
	t := cloud.Type{
		Name: name,
		Arch: h.Arch,
		Allocatable: map[string]string{
			"cpu":    strconv.FormatUint(h.CPUs, 10),
			"memory": bytesQuantity(h.Memory),
		},
		Labels:       map[string]string{archLabel: h.Arch},
		PricePerHour: perHour,
		Currency:     currency,
	}
	if h.GPUs > 0 && h.Nvidia != "" {
		t.Allocatable[nvidiaResource] = strconv.FormatUint(h.GPUs, 10)
		t.Labels[acceleratorLabel] = labelValue(h.Nvidia)
	}
	return t
}

func bytesQuantity(n uint64) string {
	const gib = 1 << 30
	if n%gib == 0 {
		return strconv.FormatUint(n/gib, 10) + "Gi"
	}
	return strconv.FormatUint(n, 10)
}

// labelValue makes a Kubernetes label value of a model's name.
func labelValue(s string) string {
	s = strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', 'A' <= r && r <= 'Z', '0' <= r && r <= '9', r == '-', r == '_', r == '.':
			return r
		default:
			return '-'
		}
	}, s)
	return strings.Trim(s[:min(len(s), 63)], "-_.")
}
