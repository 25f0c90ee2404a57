package flags_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/pflag"

	"bigfleet-providers/shared/flags"
)

func TestEmpty(t *testing.T) {
	parse := func(args ...string) *pflag.FlagSet {
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		f.String("ca", "", "PEM `file` to trust")
		f.String("addr", ":9000", "`address` to listen on")
		f.String("metrics", ":9090", "`address`; empty turns it off")
		f.String("plain", "", "text")
		f.StringSlice("zone", nil, "only in this `zone`")
		f.Int("n", 1, "number")
		flags.AllowEmpty(f, "metrics")
		if err := f.Parse(args); err != nil {
			t.Fatal(err)
		}
		return f
	}
	for _, tt := range []struct {
		args []string
		want []*flags.EmptyError
	}{
		{nil, nil},
		{[]string{"--ca=x", "--addr=:1", "--n=0"}, nil},
		{[]string{"--metrics="}, nil},
		{[]string{"--ca="}, []*flags.EmptyError{{Flag: "ca", Need: "file"}}},
		{[]string{"--ca= \t\n"}, []*flags.EmptyError{{Flag: "ca", Need: "file"}}},
		{[]string{"--ca", ""}, []*flags.EmptyError{{Flag: "ca", Need: "file"}}},
		{[]string{"--ca=x", "--ca="}, []*flags.EmptyError{{Flag: "ca", Need: "file"}}},
		{[]string{"--zone=", "--plain=", "--addr="}, []*flags.EmptyError{{Flag: "addr", Need: "address"}, {Flag: "plain", Need: "value"}, {Flag: "zone", Need: "value"}}},
	} {
		if diff := cmp.Diff(tt.want, flags.Empty(parse(tt.args...))); diff != "" {
			t.Errorf("%q (-want +got):\n%s", tt.args, diff)
		}
	}
}
