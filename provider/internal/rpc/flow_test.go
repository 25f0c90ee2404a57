package rpc

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"net"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/stats"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/tap"
	"google.golang.org/protobuf/encoding/protowire"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
	"bigfleet-providers/provider/internal/machine"
)

const flowListBytes = 1 << 20

// flowReads answers every List with flowListBytes of machines.
type flowReads struct{ frame []byte }

func newFlowReads() flowReads {
	rec := machine.Record{ID: "m", State: machine.Failed, LastError: string(bytes.Repeat([]byte("x"), 1000))}
	return flowReads{new(Framer).Frame(&rec)}
}

func (r flowReads) Frame(string) ([]byte, bool) { return r.frame, true }

func (r flowReads) Frames([]machine.State, int, []byte) ([][]byte, []byte) {
	frames := make([][]byte, flowListBytes/len(r.frame))
	for i := range frames {
		frames[i] = r.frame
	}
	return frames, []byte("revision")
}

type flowLife struct{ calls atomic.Int64 }

func (l *flowLife) Start(context.Context, machine.Request, []byte) (string, machine.Record, error) {
	l.calls.Add(1)
	return "op", machine.Record{ID: "m"}, nil
}

func serveFlow(t *testing.T, limits Limits) (addr string, flow *Flow, life *flowLife) {
	t.Helper()
	return serveFlowOf(t, limits, newFlowReads())
}

func serveFlowOf(t *testing.T, limits Limits, reads Reader) (addr string, flow *Flow, life *flowLife) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	flow, life = NewFlow(limits), &flowLife{}
	srv := grpc.NewServer(append(flow.Options(), grpc.ForceServerCodecV2(Codec()))...)
	New(life, reads, "p").Register(srv)
	reflection.Register(srv)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	t.Cleanup(func() {
		srv.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return ln.Addr().String(), flow, life
}

func dialFlow(t *testing.T, addr string) pb.CapacityProviderClient {
	t.Helper()
	conn, err := grpc.NewClient(addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	return pb.NewCapacityProviderClient(conn)
}

// rawConn speaks HTTP/2 as no gRPC client would.
type rawConn struct {
	net.Conn
	next uint32
	mu   sync.Mutex // guards what is written
	fr   *http2.Framer
	ends chan string // grpc-status of a stream, or "reset"
}

// dialRaw connects and grants the server no byte of data on any stream.
func dialRaw(t *testing.T, addr string) *rawConn {
	t.Helper()
	c, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	r := &rawConn{Conn: c, next: 1, fr: http2.NewFramer(c, c), ends: make(chan string, 100)}
	r.fr.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	if _, err := io.WriteString(c, http2.ClientPreface); err != nil {
		t.Fatal(err)
	}
	if err := r.fr.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}); err != nil {
		t.Fatal(err)
	}
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		r.read()
	}()
	t.Cleanup(func() {
		c.Close()
		<-ended
	})
	return r
}

func (r *rawConn) read() {
	for {
		f, err := r.fr.ReadFrame()
		if err != nil {
			return
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				r.mu.Lock()
				_ = r.fr.WriteSettingsAck() // a lost connection shows in the test
				r.mu.Unlock()
			}
		case *http2.MetaHeadersFrame:
			for _, h := range f.Fields {
				if h.Name == "grpc-status" {
					r.ends <- h.Value
				}
			}
		case *http2.RSTStreamFrame:
			r.ends <- "reset"
		}
	}
}

// call begins a call with the body, and ends its request if told so.
func (r *rawConn) call(t *testing.T, method string, body []byte, end bool) (stream uint32) {
	t.Helper()
	var block bytes.Buffer
	enc := hpack.NewEncoder(&block)
	for _, h := range []hpack.HeaderField{
		{Name: ":method", Value: "POST"}, {Name: ":scheme", Value: "http"}, {Name: ":path", Value: method},
		{Name: ":authority", Value: "x"}, {Name: "content-type", Value: "application/grpc"}, {Name: "te", Value: "trailers"},
	} {
		if err := enc.WriteField(h); err != nil {
			t.Fatal(err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	stream = r.next
	r.next += 2
	if err := r.fr.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: block.Bytes(), EndHeaders: true}); err != nil {
		t.Fatal(err)
	}
	if err := r.fr.WriteData(stream, end, body); err != nil {
		t.Fatal(err)
	}
	return stream
}

// message is a request of so many bytes in front of body.
func message(length int, body []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(length)), body...)
}

func (r *rawConn) wantEnd(t *testing.T, want string) {
	t.Helper()
	select {
	case got := <-r.ends:
		if got != want {
			t.Errorf("a call ended with %s, want %s", got, want)
		}
	case <-time.After(30 * time.Second):
		t.Errorf("no call ended; want %s", want)
	}
}

func (r *rawConn) reset(t *testing.T, stream uint32) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.fr.WriteRSTStream(stream, http2.ErrCodeCancel); err != nil {
		t.Fatal(err)
	}
}

// TestUnreadListsAreBounded: whoever asks for lists and does not read them uses
// up their own connection's share, all of them together that of all; and what
// they held is free again when they cancel or are gone.
func TestUnreadListsAreBounded(t *testing.T) {
	t.Parallel()
	const two = 2*flowListBytes + 1024
	addr, flow, _ := serveFlow(t, Limits{AnswersEach: two, Answers: two + flowListBytes, Patience: 200 * time.Millisecond})
	list := pb.CapacityProvider_List_FullMethodName
	exhausted := "8"
	first, second := dialRaw(t, addr), dialRaw(t, addr)
	var streams []uint32
	for range 2 {
		streams = append(streams, first.call(t, list, message(0, nil), true))
	}
	for flow.answers.TryAcquire(flowListBytes * 3 / 2) { // until both are made
		flow.answers.Release(flowListBytes * 3 / 2)
		time.Sleep(time.Millisecond)
	}
	for range 3 {
		first.call(t, list, message(0, nil), true)
	}
	for range 3 {
		first.wantEnd(t, exhausted)
	}
	second.call(t, list, message(0, nil), true)
	third := dialFlow(t, addr)
	listing := func(want codes.Code) {
		t.Helper()
		deadline := time.Now().Add(30 * time.Second)
		for {
			_, err := third.List(t.Context(), &pb.ListFilter{})
			if got := status.Code(err); got == want {
				return
			} else if time.Now().After(deadline) {
				t.Fatalf("a list of another connection: %v, want %s", err, want)
			}
		}
	}
	listing(codes.ResourceExhausted) // once the second's list was made
	if _, err := third.Get(t.Context(), &pb.MachineRef{Id: "m"}); err != nil {
		t.Errorf("what is small waits for nothing: %v", err)
	}
	first.reset(t, streams[0])
	listing(codes.OK)
	first.Close()
	second.Close()
	listing(codes.OK)
}

// TestCancelledListsLeaveNothing: wherever a call was when its caller went, what
// its list held is free again.
func TestCancelledListsLeaveNothing(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(-1)) // by itself, and not with their memory
	const all = 8 * flowListBytes
	addr, flow, _ := serveFlow(t, Limits{AnswersEach: all, Answers: all})
	client := dialFlow(t, addr)
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 150 {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i%50)*100*time.Microsecond)
				if i%2 == 0 {
					var hang context.CancelFunc
					ctx, hang = context.WithCancel(t.Context())
					time.AfterFunc(time.Duration(i%50)*100*time.Microsecond, hang)
				}
				_, _ = client.List(ctx, &pb.ListFilter{}) // over or not
				cancel()
			}
		})
	}
	wg.Wait()
	for deadline := time.Now().Add(30 * time.Second); !flow.answers.TryAcquire(all); time.Sleep(10 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("what cancelled lists held is held for ever")
		}
	}
}

// TestEndedCallHoldsNoList: the transport drops an answer that comes behind the
// end of its call. What it held is free at once, without the garbage collector.
func TestEndedCallHoldsNoList(t *testing.T) {
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	late, cancel := context.WithDeadline(t.Context(), time.Now().Add(-time.Second))
	defer cancel()
	for name, tt := range map[string]struct {
		ctx  context.Context
		free bool
	}{
		"cancelled":       {cancelled, true},
		"deadline passed": {late, true},
		"under way":       {t.Context(), false},
	} {
		t.Run(name, func(t *testing.T) {
			flow := NewFlow(Limits{Answers: 1, AnswersEach: 1})
			ctx, err := flow.tap(flow.TagConn(tt.ctx, nil), &tap.Info{})
			if err != nil {
				t.Fatal(err)
			}
			conn, call := ctx.Value(flowConnKey{}).(*flowConn), ctx.Value(flowCallKey{}).(*flowCall)
			if !conn.answers.TryAcquire(1) || !flow.answers.TryAcquire(1) {
				t.Fatal("no room")
			}
			call.lease = &lease{conn: conn, each: 1, total: 1}
			flow.HandleRPC(ctx, &stats.OutPayload{})
			if free := conn.answers.TryAcquire(1) && flow.answers.TryAcquire(1); free != tt.free {
				t.Errorf("free: %t, want %t", free, tt.free)
			}
		})
	}
}

// countedReads knows how many of its slices are made and kept by somebody.
type countedReads struct {
	flowReads
	made, kept atomic.Int64
}

func (r *countedReads) Frames(states []machine.State, limit int, since []byte) ([][]byte, []byte) {
	frames, revision := r.flowReads.Frames(states, limit, since)
	frames = append(make([][]byte, 0, len(frames)+1), frames...) // room for the revision
	r.made.Add(1)
	r.kept.Add(1)
	runtime.AddCleanup(&frames[0], func(r *countedReads) { r.kept.Add(-1) }, r)
	return frames, revision
}

// TestWaitingListsKeepNothing: of a large fleet the slice of its frames alone is
// megabytes, and thousands of Lists may wait for room.
func TestWaitingListsKeepNothing(t *testing.T) {
	t.Parallel()
	const lists = 60
	reads := &countedReads{flowReads: newFlowReads()}
	addr, _, _ := serveFlowOf(t, Limits{AnswersEach: 2 * flowListBytes, Patience: time.Minute}, reads)
	r := dialRaw(t, addr)
	for range lists {
		r.call(t, pb.CapacityProvider_List_FullMethodName, message(0, nil), true)
	}
	for end := time.Now().Add(30 * time.Second); reads.made.Load() < lists || reads.kept.Load() > 2; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d lists were made for %d calls, %d are kept", reads.made.Load(), lists, reads.kept.Load())
		}
		runtime.GC()
	}
}

// TestListsAreWhole: with a lease and without.
func TestListsAreWhole(t *testing.T) {
	t.Parallel()
	addr, _, _ := serveFlow(t, Limits{AnswersEach: 1 << 10, Answers: 1 << 11}) // each is over the limits, and made alone
	client := dialFlow(t, addr)
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			got, err := client.List(t.Context(), &pb.ListFilter{})
			if err != nil || len(got.GetMachines()) != flowListBytes/len(newFlowReads().frame) || string(got.GetRevision()) != "revision" {
				t.Errorf("%d machines, revision %q, %v", len(got.GetMachines()), got.GetRevision(), err)
			}
		})
	}
	wg.Wait()
}

// TestUnfinishedRequestsEnd: a request that does not come to its end is given up
// when its time is over, and keeps no others waiting before.
func TestUnfinishedRequestsEnd(t *testing.T) {
	t.Parallel()
	const arrival = 2 * time.Second
	addr, flow, life := serveFlow(t, Limits{Requests: 4, Arrival: arrival})
	create := pb.CapacityProvider_Create_FullMethodName
	r := dialRaw(t, addr)
	began := time.Now()
	r.call(t, create, message(4<<20, []byte("half")), false)
	for flow.requests.TryAcquire(4) { // until it has its place
		flow.requests.Release(4)
		time.Sleep(time.Millisecond)
	}
	body := protowire.AppendString(protowire.AppendTag(nil, 1, protowire.BytesType), "m")
	r.call(t, create, message(len(body), body), true)
	for life.calls.Load() == 0 { // its answer finds no window
		if time.Since(began) > 20*time.Second {
			t.Fatal("the whole request never came through")
		}
		time.Sleep(time.Millisecond)
	}
	select {
	case <-r.ends:
		if took := time.Since(began); took < arrival {
			t.Errorf("given up after %s", took)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("never given up")
	}
}

// TestUnfinishedRequestsGiveWay: however many requests are left unfinished, on
// however many connections, calls on another one come through soon, also from the
// same address; and where nobody waits, a slow one has its time.
func TestUnfinishedRequestsGiveWay(t *testing.T) {
	t.Parallel()
	const turn = 200 * time.Millisecond
	addr, flow, _ := serveFlow(t, Limits{Calls: 100, Requests: 8, Arrival: time.Minute, Turn: turn})
	create := pb.CapacityProvider_Create_FullMethodName
	var raws []*rawConn
	for range 16 {
		r := dialRaw(t, addr)
		for range 20 { // most of them beyond the limit on calls
			r.call(t, create, message(4<<20, []byte("half")), false)
		}
		raws = append(raws, r)
	}
	waiting := func() bool {
		flow.mu.Lock()
		defer flow.mu.Unlock()
		return flow.waiting > 0
	}
	for !waiting() {
		time.Sleep(time.Millisecond)
	}
	client := dialFlow(t, addr)
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
		began := time.Now()
		if _, err := client.Create(ctx, &pb.CreateRequest{MachineId: "m"}); err != nil {
			t.Errorf("beside 320 unfinished requests: %v", err)
		}
		cancel()
		// 15 connections before it, 8 at a time, are 2 turns; 320 requests were 40.
		if took := time.Since(began); took > 15*turn {
			t.Errorf("beside 320 unfinished requests a call took %s", took)
		}
	}
	for _, r := range raws {
		r.Close()
	}
	for !flow.requests.TryAcquire(8) {
		time.Sleep(time.Millisecond)
	}
	flow.requests.Release(8)
	slow := dialRaw(t, addr)
	slow.call(t, create, message(4<<20, []byte("half")), false)
	select {
	case end := <-slow.ends:
		t.Errorf("alone, an unfinished request ended with %s", end)
	case <-time.After(5 * turn):
	}
}

// TestOpenCallsAreBounded counts calls from their headers on, and reflection for
// itself.
func TestOpenCallsAreBounded(t *testing.T) {
	t.Parallel()
	addr, _, _ := serveFlow(t, Limits{Calls: 5, Reflections: 2})
	reflect := "/grpc.reflection.v1.ServerReflection/ServerReflectionInfo"
	exhausted := "8"
	r := dialRaw(t, addr)
	for range 2 {
		r.call(t, reflect, nil, false)
	}
	r.call(t, reflect, nil, false)
	r.wantEnd(t, exhausted)
	for range 3 {
		r.call(t, "/no.such/Method", message(8, nil), false) // ends at once, and counts no longer
	}
	client := dialFlow(t, addr)
	for range 20 {
		if _, err := client.Get(t.Context(), &pb.MachineRef{Id: "m"}); err != nil {
			t.Fatalf("after calls of no method: %v", err)
		}
	}
	create := pb.CapacityProvider_Create_FullMethodName
	for range 6 { // 2 reflections and 3 of these, while nobody else calls
		r.call(t, create, message(8, nil), false)
	}
	for refused := 0; refused < 3; {
		select {
		case end := <-r.ends:
			if end == exhausted {
				refused++
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("%d calls were refused, want 3", refused)
		}
	}
	for range 20 { // another connection still has its share
		if _, err := client.Get(t.Context(), &pb.MachineRef{Id: "m"}); err != nil {
			t.Fatalf("beside a connection that has all calls: %v", err)
		}
	}
}
