package instances_test

import (
	"context"
	"net/http"
	"net/url"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/fakecloud"
)

// wantTypes is one type of each sort, as both the API and the recorded table
// tell it.
var wantTypes = map[string]cloud.Type{
	"DEV1-S": {
		Name: "DEV1-S", Arch: "amd64", PricePerHour: 0.008976, Currency: "EUR",
		Allocatable: map[string]string{"cpu": "2", "memory": "2Gi"},
		Labels:      map[string]string{"kubernetes.io/arch": "amd64"},
	},
	"BASIC2-A2C-4G": {
		Name: "BASIC2-A2C-4G", Arch: "arm64", PricePerHour: 0.023, Currency: "EUR",
		Allocatable: map[string]string{"cpu": "2", "memory": "4Gi"},
		Labels:      map[string]string{"kubernetes.io/arch": "arm64"},
	},
	"L4-2-24G": {
		Name: "L4-2-24G", Arch: "amd64", PricePerHour: 1.575, Currency: "EUR",
		Allocatable: map[string]string{"cpu": "16", "memory": "96Gi", "nvidia.com/gpu": "2"},
		Labels:      map[string]string{"kubernetes.io/arch": "amd64", "bigfleet.io/accelerator": "L4"},
	},
}

func checkTypes(t *testing.T, types map[string]cloud.Type) {
	t.Helper()
	for name, want := range wantTypes {
		if diff := cmp.Diff(want, types[name]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if len(types) < 100 {
		t.Errorf("%d types, want all of the zone", len(types))
	}
}

func TestTypes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		types, err := w.connect(t).Types(within(t))
		must(t, err)
		checkTypes(t, types)
		if w.Requests(fakecloud.RouteListServerTypes) < 2 {
			t.Error("one page holds all types, so paging was not tested")
		}
	})
}

// A catalogue that is not whole is an error: nobody may conclude from it that a
// type is gone. The recorded one is there for a start without the API.
func TestTypesWithoutTheAPI(t *testing.T) {
	secondPage := func(r fakecloud.Request) bool { return url.Values(r.Query).Get("page") == "2" }
	for name, fault := range map[string]fakecloud.Fault{
		"down":             {Times: -1, Reply: fakecloud.Unavailable()},
		"second page lost": {Match: secondPage, Times: -1, Hangup: true},
		"empty":            {Times: -1, Reply: fakecloud.Empty()},
		"no total":         {Times: -1, Reply: &fakecloud.Reply{Status: http.StatusOK, ContentType: "application/json", Body: `{"servers":{"DEV1-S":{"arch":"x86_64"}}}`}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t)
				fault.Route = fakecloud.RouteListServerTypes
				w.Inject(fault)
				c := w.connect(t)
				if types, err := c.Types(within(t)); err == nil {
					t.Errorf("%d types came from a broken answer", len(types))
				}
				types, err := c.Recorded()
				must(t, err)
				checkTypes(t, types)
			})
		})
	}
}

func TestTypesWhenTheAPIHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Inject(fakecloud.Fault{Route: fakecloud.RouteListServerTypes, Times: -1, Delay: time.Minute})
		late, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		if _, err := w.connect(t).Types(late); err == nil {
			t.Error("types came from an API that hangs")
		}
	})
}

func TestTypesOddEntries(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t)
		w.Inject(fakecloud.Fault{Route: fakecloud.RouteListServerTypes, Reply: &fakecloud.Reply{
			Status: http.StatusOK, ContentType: "application/json", Header: http.Header{"X-Total-Count": {"5"}},
			Body: `{"servers":{
			"DEV1-S":{"arch":"x86_64","ncpus":2,"ram":2147483648,"hourly_price":0},
			"NEW1-ODD":{"arch":"x86_64","ncpus":1,"ram":1500000000,"hourly_price":-1},
			"C1":{"arch":"arm","ncpus":4,"ram":2147483648,"hourly_price":0.01},
			"GPU-OTHER":{"arch":"x86_64","ncpus":4,"ram":1073741824,"hourly_price":0.1,"gpu":1,"gpu_info":{"gpu_manufacturer":"ACME","gpu_name":"Z9"}},
			"GPU-NAMED":{"arch":"x86_64","ncpus":4,"ram":1073741824,"hourly_price":0.1,"gpu":2,"gpu_info":{"gpu_manufacturer":"NVIDIA","gpu_name":"H100 (PCIe)"}}
		}}`,
		}})
		types, err := w.connect(t).Types(within(t))
		must(t, err)
		amd64 := map[string]string{"kubernetes.io/arch": "amd64"}
		want := map[string]cloud.Type{
			"DEV1-S": wantTypes["DEV1-S"], // the price is the recorded one
			"NEW1-ODD": {
				Name: "NEW1-ODD", Arch: "amd64", Currency: "EUR", Labels: amd64,
				Allocatable: map[string]string{"cpu": "1", "memory": "1500000000"},
			},
			"GPU-OTHER": {
				Name: "GPU-OTHER", Arch: "amd64", Currency: "EUR", PricePerHour: 0.1, Labels: amd64,
				Allocatable: map[string]string{"cpu": "4", "memory": "1Gi"},
			},
			"GPU-NAMED": {
				Name: "GPU-NAMED", Arch: "amd64", Currency: "EUR", PricePerHour: 0.1,
				Allocatable: map[string]string{"cpu": "4", "memory": "1Gi", "nvidia.com/gpu": "2"},
				Labels:      map[string]string{"kubernetes.io/arch": "amd64", "bigfleet.io/accelerator": "H100--PCIe"},
			},
		}
		if diff := cmp.Diff(want, types); diff != "" {
			t.Errorf("types (-want +got):\n%s", diff)
		}
	})
}
