package scaleway_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/cloud/scaleway"
)

func TestHardwareType(t *testing.T) {
	for name, tt := range map[string]struct {
		hardware scaleway.Hardware
		want     cloud.Type
	}{
		"plain": {
			scaleway.Hardware{Arch: "arm64", CPUs: 2, Memory: 4 << 30},
			cloud.Type{Arch: "arm64", Allocatable: map[string]string{"cpu": "2", "memory": "4Gi"}, Labels: map[string]string{"kubernetes.io/arch": "arm64"}},
		},
		"odd memory": {
			scaleway.Hardware{Arch: "amd64", CPUs: 1, Memory: 1<<30 + 1},
			cloud.Type{Arch: "amd64", Allocatable: map[string]string{"cpu": "1", "memory": "1073741825"}, Labels: map[string]string{"kubernetes.io/arch": "amd64"}},
		},
		"GPUs of a known model": {
			scaleway.Hardware{Arch: "amd64", CPUs: 8, Memory: 1 << 30, GPUs: 2, Nvidia: " NVIDIA H100/80G "},
			cloud.Type{
				Arch: "amd64", Allocatable: map[string]string{"cpu": "8", "memory": "1Gi", "nvidia.com/gpu": "2"},
				Labels: map[string]string{"kubernetes.io/arch": "amd64", "bigfleet.io/accelerator": "NVIDIA-H100-80G"},
			},
		},
		"GPUs of nobody": {
			scaleway.Hardware{Arch: "amd64", CPUs: 8, Memory: 1 << 30, GPUs: 2},
			cloud.Type{Arch: "amd64", Allocatable: map[string]string{"cpu": "8", "memory": "1Gi"}, Labels: map[string]string{"kubernetes.io/arch": "amd64"}},
		},
	} {
		tt.want.Name, tt.want.PricePerHour, tt.want.Currency = "T", 0.5, "EUR"
		if diff := cmp.Diff(tt.want, tt.hardware.Type("T", 0.5)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}
