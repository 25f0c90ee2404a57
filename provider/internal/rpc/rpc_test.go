package rpc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/asn1"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/testing/protocmp"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
	"bigfleet-providers/provider/internal/machine"
)

var framer = Framer{Provider: "p"}

func records(n int) []machine.Record {
	recs := make([]machine.Record, n)
	for i := range recs {
		recs[i] = machine.Record{ // records of every shape: bare, bound, failed
			ID: fmt.Sprint("m", i), State: machine.Configured, Cluster: "c", LastError: "",
			Host:     fmt.Sprint("z/", i),
			Metadata: map[string]string{"nul": "a\x00b", "": "", "control": "\x01\x7f"},
			Offer: &machine.Offer{
				InstanceType: "DEV1-S", Zone: "z", Capacity: machine.OnDemand, PricePerHour: 0.01,
				Resources: map[string]string{"cpu": "1"}, Labels: map[string]string{"l": "v"}, Allocatable: map[string]string{"cpu": "2"},
			},
		}
	}
	for i := range recs {
		switch i % 4 {
		case 1:
			recs[i].Host, recs[i].Cluster, recs[i].Metadata = "", "", nil
		case 2:
			recs[i].Offer, recs[i].LastError = nil, "Create failed"
		}
	}
	return recs
}

// fixed is a lifecycle and a reader with scripted answers.
type fixed struct {
	recs []machine.Record
	got  machine.Request
	blob []byte
	err  error
}

func (f *fixed) Start(_ context.Context, q machine.Request, blob []byte) (string, machine.Record, error) {
	f.got, f.blob = q, blob
	if f.err != nil {
		return "", machine.Record{}, f.err
	}
	return "op", f.recs[0], nil
}

func (f *fixed) Frame(id string) ([]byte, bool) {
	for _, rec := range f.recs {
		if rec.ID == id {
			return framer.Frame(&rec), true
		}
	}
	return nil, false
}

func (f *fixed) Frames(_ []machine.State, limit int, since []byte) ([][]byte, []byte) {
	recs := f.recs
	if limit > 0 {
		recs = recs[:min(limit, len(recs))]
	}
	var frames [][]byte
	for _, rec := range recs {
		frames = append(frames, framer.Frame(&rec))
	}
	return frames, append([]byte("after "), since...)
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// dial serves f over an in-memory connection, as the process serves it.
func dial(t *testing.T, f *fixed) pb.CapacityProviderClient {
	t.Helper()
	ln := bufconn.Listen(1 << 20)
	log := slog.New(slog.DiscardHandler)
	srv := grpc.NewServer(grpc.ForceServerCodecV2(Codec()), grpc.ChainUnaryInterceptor(
		Measure(log, func(string, codes.Code, time.Duration) {}), Recover(log, func() {}), Authorise(false, func(string, error) {})))
	New(f, f, "p").Register(srv)
	done := make(chan error, 1)
	go func() { done <- srv.Serve(ln) }()
	conn, err := grpc.NewClient("passthrough:///test", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return ln.DialContext(ctx) }),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(64<<20)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		conn.Close()
		srv.Stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return pb.NewCapacityProviderClient(conn)
}

// TestReadsAreTheRecords compares what arrives with what protobuf would have
// made of the records, over lists below, at and above one buffer's size.
func TestReadsAreTheRecords(t *testing.T) {
	for _, n := range []int{0, 1, 7, 300, 5000} {
		f := &fixed{recs: records(n)}
		client := dial(t, f)
		want := &pb.MachineList{Revision: []byte("after r")}
		for _, rec := range f.recs {
			want.Machines = append(want.Machines, toProto(&rec, framer.Provider))
		}
		got, err := client.List(t.Context(), &pb.ListFilter{SinceRevision: []byte("r")})
		if err != nil {
			t.Fatal(err)
		}
		if !proto.Equal(want, got) {
			t.Errorf("a list of %d differs", n)
		}
		if n == 0 {
			continue
		}
		one, err := client.Get(t.Context(), &pb.MachineRef{Id: "m0"})
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(toProto(&f.recs[0], framer.Provider), one, protocmp.Transform()); diff != "" {
			t.Error(diff)
		}
	}
}

func TestBadReads(t *testing.T) {
	client := dial(t, &fixed{recs: records(1)})
	for name, tc := range map[string]struct {
		call func() error
		want codes.Code
	}{
		"no id": {func() error { _, err := client.Get(t.Context(), &pb.MachineRef{}); return err }, codes.InvalidArgument},
		"long id": {func() error {
			_, err := client.Get(t.Context(), &pb.MachineRef{Id: string(make([]byte, 257))})
			return err
		}, codes.InvalidArgument},
		"unknown id":   {func() error { _, err := client.Get(t.Context(), &pb.MachineRef{Id: "x"}); return err }, codes.NotFound},
		"negative cap": {func() error { _, err := client.List(t.Context(), &pb.ListFilter{MaxResults: -1}); return err }, codes.InvalidArgument},
	} {
		if got := status.Code(tc.call()); got != tc.want {
			t.Errorf("%s: %s, want %s", name, got, tc.want)
		}
	}
}

func TestCallsReachTheLifecycle(t *testing.T) {
	f := &fixed{recs: records(1)}
	client := dial(t, f)
	fence := machine.Fence{Shard: "s", Epoch: 2, Sequence: 3}
	metadata := map[string]string{"nul": "a\x00b"}
	for _, tc := range []struct {
		call func() (*pb.TransitionAck, error)
		want machine.Request
		blob string
	}{
		{func() (*pb.TransitionAck, error) {
			return client.Create(t.Context(), &pb.CreateRequest{MachineId: "m0", ShardId: "s", ShardEpoch: 2, SequenceNumber: 3})
		}, machine.Request{Kind: machine.Create, MachineID: "m0", Fence: fence}, ""},
		{func() (*pb.TransitionAck, error) {
			return client.Configure(t.Context(), &pb.ConfigureRequest{MachineId: "m0", ClusterId: "c", BootstrapBlob: []byte("b"), ShardMetadata: metadata, ShardId: "s", ShardEpoch: 2, SequenceNumber: 3})
		}, machine.Request{Kind: machine.Configure, MachineID: "m0", Fence: fence, Cluster: "c", Metadata: metadata}, "b"},
		{func() (*pb.TransitionAck, error) {
			return client.Drain(t.Context(), &pb.DrainRequest{MachineId: "m0", GracePeriodSeconds: 9, ShardId: "s", ShardEpoch: 2, SequenceNumber: 3})
		}, machine.Request{Kind: machine.Drain, MachineID: "m0", Fence: fence, GraceSeconds: 9}, ""},
		{func() (*pb.TransitionAck, error) {
			return client.Delete(t.Context(), &pb.DeleteRequest{MachineId: "m0", ShardId: "s", ShardEpoch: 2, SequenceNumber: 3})
		}, machine.Request{Kind: machine.Delete, MachineID: "m0", Fence: fence}, ""},
	} {
		ack, err := tc.call()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(tc.want, f.got); diff != "" || string(f.blob) != tc.blob {
			t.Errorf("blob %q, request:\n%s", f.blob, diff)
		}
		if ack.GetOperationId() != "op" || !proto.Equal(ack.GetMachine(), toProto(&f.recs[0], framer.Provider)) {
			t.Errorf("ack %v", ack)
		}
	}
}

func TestStatus(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want codes.Code
	}{
		{&machine.Error{Code: machine.InvalidArgument}, codes.InvalidArgument},
		{&machine.Error{Code: machine.Stale}, codes.FailedPrecondition},
		{&machine.Error{Code: machine.NotFound}, codes.NotFound},
		{&machine.Error{Code: machine.Busy}, codes.Aborted},
		{&machine.Error{Code: machine.Misplaced}, codes.Internal},
		{&machine.Error{Code: machine.Unsupported}, codes.Unimplemented},
		{fmt.Errorf("store: %w", &machine.Error{Code: machine.Unavailable}), codes.Unavailable},
		{&machine.Error{Code: machine.Exhausted}, codes.ResourceExhausted},
		{context.Canceled, codes.Canceled},
		{context.DeadlineExceeded, codes.DeadlineExceeded},
		{errors.New("anything else"), codes.Internal},
	} {
		client := dial(t, &fixed{err: tc.err})
		_, err := client.Create(t.Context(), &pb.CreateRequest{MachineId: "m"})
		if got := status.Code(err); got != tc.want {
			t.Errorf("%v: %s, want %s", tc.err, got, tc.want)
		}
	}
}

type panics struct{ *fixed }

func (panics) Start(context.Context, machine.Request, []byte) (string, machine.Record, error) {
	panic("a bug")
}

func TestPanicIsOneCall(t *testing.T) {
	log := slog.New(slog.DiscardHandler)
	caught := 0
	_, err := Recover(log, func() { caught++ })(t.Context(), nil, &grpc.UnaryServerInfo{}, func(ctx context.Context, _ any) (any, error) {
		return New(panics{}, nil, "p").Create(ctx, &pb.CreateRequest{MachineId: "m"})
	})
	if status.Code(err) != codes.Internal || caught != 1 {
		t.Errorf("got %v, counted %d", err, caught)
	}
}

func TestAuthorise(t *testing.T) {
	const create, list = pb.CapacityProvider_Create_FullMethodName, pb.CapacityProvider_List_FullMethodName
	for name, tc := range map[string]struct {
		uris     []string
		method   string
		shard    string
		required bool
		denied   bool
	}{
		"own shard":                {[]string{"bigfleet://shard/a"}, create, "a", true, false},
		"another shard":            {[]string{"bigfleet://shard/a"}, create, "b", false, true},
		"no token":                 {[]string{"bigfleet://shard/a"}, create, "", false, true},
		"shard reads":              {[]string{"bigfleet://shard/a"}, list, "", true, false},
		"shard with a slash":       {[]string{"bigfleet://shard/a/b"}, create, "a/b", false, false},
		"readonly reads":           {[]string{"bigfleet://readonly"}, list, "", true, false},
		"readonly mutates":         {[]string{"bigfleet://readonly"}, create, "a", false, true},
		"admin reads":              {[]string{"bigfleet://admin"}, list, "", true, false},
		"admin mutates":            {[]string{"bigfleet://admin"}, create, "a", false, true},
		"none, not required":       {nil, create, "a", false, false},
		"none, required":           {nil, create, "a", true, true},
		"none reads, required":     {nil, list, "", true, true},
		"foreign scheme":           {[]string{"spiffe://shard/a"}, create, "a", false, false},
		"foreign scheme, required": {[]string{"spiffe://shard/a"}, create, "a", true, true},
		"two":                      {[]string{"bigfleet://shard/a", "bigfleet://shard/b"}, create, "a", false, true},
		"two, reading":             {[]string{"bigfleet://shard/a", "bigfleet://readonly"}, list, "", false, true},
		"empty shard":              {[]string{"bigfleet://shard/"}, create, "", false, true},
		"unknown role":             {[]string{"bigfleet://root"}, list, "", false, true},
		"shard with a query":       {[]string{"bigfleet://shard/a?only=list"}, create, "a", false, true},
		"shard with a fragment":    {[]string{"bigfleet://shard/a#x"}, create, "a", false, true},
		"another spelling":         {[]string{"bigfleet://shard/%61"}, create, "a", false, true},
		"another spelling, reads":  {[]string{"bigfleet://readonly/"}, list, "", false, true},
		"scheme in capitals":       {[]string{"BIGFLEET://shard/a"}, create, "a", false, true},
		"shard with a user":        {[]string{"bigfleet://u@shard/a"}, create, "a", false, true},
		"another service":          {nil, "/grpc.health.v1.Health/Check", "", true, false},
	} {
		t.Run(name, func(t *testing.T) {
			cert := named(t, tc.uris)
			ctx := peer.NewContext(t.Context(), &peer.Peer{AuthInfo: credentials.TLSInfo{State: tls.ConnectionState{VerifiedChains: [][]*x509.Certificate{{cert}}}}})
			var req any = &pb.ListFilter{}
			if tc.method == create {
				req = &pb.CreateRequest{ShardId: tc.shard}
			}
			counted := 0
			_, err := Authorise(tc.required, func(string, error) { counted++ })(ctx, req, &grpc.UnaryServerInfo{FullMethod: tc.method},
				func(context.Context, any) (any, error) { return nil, nil })
			if got := status.Code(err) == codes.PermissionDenied; got != tc.denied || counted != btoi(tc.denied) {
				t.Errorf("%v (%d counted), want denied: %v", err, counted, tc.denied)
			}
		})
	}
}

// named is a certificate with the URIs among its names, spelled as they are.
func named(t *testing.T, uris []string) *x509.Certificate {
	t.Helper()
	names := []asn1.RawValue{}
	for _, uri := range uris {
		names = append(names, asn1.RawValue{Class: asn1.ClassContextSpecific, Tag: 6, Bytes: []byte(uri)})
	}
	value, err := asn1.Marshal(names)
	if err != nil {
		t.Fatal(err)
	}
	return &x509.Certificate{Extensions: []pkix.Extension{{Id: asn1.ObjectIdentifier{2, 5, 29, 17}, Value: value}}}
}

func BenchmarkFrame(b *testing.B) {
	rec := records(1)[0]
	b.ReportAllocs()
	for b.Loop() {
		framer.Frame(&rec)
	}
}

// BenchmarkJoin reports the cost of a list's body beside one copy of its bytes.
func BenchmarkJoin(b *testing.B) {
	var frames [][]byte
	size := 0
	for _, rec := range records(10_000) {
		frames = append(frames, framer.Frame(&rec))
		size += len(frames[len(frames)-1])
	}
	src := make([]byte, size)
	b.Run("floor=copy", func(b *testing.B) {
		b.SetBytes(int64(size))
		for b.Loop() {
			copy(make([]byte, size), src)
		}
	})
	b.Run("join", func(b *testing.B) {
		b.SetBytes(int64(size))
		for b.Loop() {
			data := join(frames)
			data.Free()
		}
	})
}
