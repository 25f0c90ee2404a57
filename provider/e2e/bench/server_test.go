package bench

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

// binary is the provider as an operator runs it, without the race detector.
var binary string

func TestMain(m *testing.M) {
	code, err := run(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

func run(m *testing.M) (int, error) {
	dir, err := os.MkdirTemp("", "bigfleet-bench-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	binary = filepath.Join(dir, "scaleway")
	build := exec.Command("go", "build", "-o", binary, "./provider/cmd/scaleway")
	build.Dir = "../../.."
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build the provider: %w\n%s", err, out)
	}
	code := m.Run()
	return code, report()
}

// server is a running provider and a connection to it.
type server struct {
	b    *testing.B
	cmd  *exec.Cmd
	conn *grpc.ClientConn
	pb.CapacityProviderClient
	started time.Duration // from exec to the first answer
	lines   lines         // of its log
	ended   chan struct{} // closed once the process was waited for
}

var grpcAddr = regexp.MustCompile(`msg=serving .*grpc=(\S+)`)

// serve starts a provider with so many slots; state "" keeps them in memory.
func serve(b *testing.B, machines int, state string, flags ...string) *server {
	b.Helper()
	args := append([]string{
		"--addr=127.0.0.1:0", "--metrics-addr=127.0.0.1:0", "--provider=bench", "--use-fake-backend",
		"--seed-count=" + strconv.Itoa(machines),
	}, flags...)
	if state != "" {
		args = append(args, "--state="+state)
	}
	s := &server{b: b, cmd: exec.Command(binary, args...)}
	s.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + os.TempDir()}
	stderr, err := s.cmd.StderrPipe()
	if err != nil {
		b.Fatal(err)
	}
	began := time.Now()
	if err := s.cmd.Start(); err != nil {
		b.Fatal(err)
	}
	addr := make(chan string, 1)
	s.ended = make(chan struct{})
	go func() {
		defer close(s.ended)
		for lines := bufio.NewScanner(stderr); lines.Scan(); {
			if m := grpcAddr.FindStringSubmatch(lines.Text()); m != nil {
				addr <- m[1]
			}
			s.lines.add(lines.Text())
		}
		_ = s.cmd.Wait() // its output is drained; how it ended does not matter here
	}()
	b.Cleanup(s.stop)
	select {
	case target := <-addr:
		s.conn, err = grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(1<<30)))
	case <-time.After(time.Minute):
		err = fmt.Errorf("the provider did not start")
	}
	if err != nil {
		b.Fatal(err)
	}
	s.CapacityProviderClient = pb.NewCapacityProviderClient(s.conn)
	if _, err := s.List(context.Background(), &pb.ListFilter{MaxResults: 1}, grpc.WaitForReady(true)); err != nil {
		b.Fatal(err)
	}
	s.started = time.Since(began)
	return s
}

// stop ends the process as a crash would; a second call does nothing.
func (s *server) stop() {
	if s.conn != nil {
		_ = s.conn.Close() // a second time is an error of no interest
	}
	_ = s.cmd.Process.Kill() // it may be gone
	<-s.ended
}

// ids returns the ids of the slots that are free.
func (s *server) ids() []string {
	s.b.Helper()
	list, err := s.List(context.Background(), &pb.ListFilter{States: []pb.MachineState{pb.MachineState_MACHINE_STATE_SPECULATIVE}})
	if err != nil {
		s.b.Fatal(err)
	}
	ids := make([]string, len(list.GetMachines()))
	for i, m := range list.GetMachines() {
		ids[i] = m.GetId()
	}
	return ids
}

// rss is the process's resident memory in bytes.
func (s *server) rss() int64 { return s.memory("VmRSS:") }

// memory is a field of the process's status in /proc, in bytes.
func (s *server) memory(field string) int64 {
	s.b.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		s.b.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(status), field)
	kib, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
	if err != nil {
		s.b.Fatal(err)
	}
	return kib << 10
}

// undecoded is a codec that leaves answers as they came: the client's decoding
// is not the server's time.
type undecoded struct{}

// body is an answer as it came.
type body struct{ size int }

func (undecoded) Name() string { return "proto" }

func (undecoded) Marshal(v any) (mem.BufferSlice, error) {
	b, err := proto.Marshal(v.(proto.Message))
	return mem.BufferSlice{mem.SliceBuffer(b)}, err
}

func (undecoded) Unmarshal(data mem.BufferSlice, v any) error {
	v.(*body).size = data.Len()
	return nil
}

var _ encoding.CodecV2 = undecoded{}

// list reads a list without decoding it and returns its size.
func (s *server) list(filter *pb.ListFilter) int {
	s.b.Helper()
	var out body
	if err := s.conn.Invoke(context.Background(), pb.CapacityProvider_List_FullMethodName, filter, &out, grpc.ForceCodecV2(undecoded{})); err != nil {
		s.b.Fatal(err)
	}
	return out.size
}
