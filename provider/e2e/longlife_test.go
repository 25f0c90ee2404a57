package e2e

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

// held is what a provider has that must not grow with what it lived through.
type held struct{ goroutines, descriptors, hosts, files int }

func (p *provider) held(t *testing.T, dir string, admin *http.Client) held {
	t.Helper()
	_, metrics := p.scrape(t, "/metrics")
	m := regexp.MustCompile(`(?m)^go_goroutines (\d+)$`).FindStringSubmatch(metrics)
	if m == nil {
		t.Fatal("go_goroutines is not among the metrics")
	}
	goroutines, err := strconv.Atoi(m[1])
	if err != nil {
		t.Fatal(err)
	}
	descriptors, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	resp, err := admin.Get("http://admin/hosts")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	return held{goroutines, len(descriptors), len(regexp.MustCompile(`"machine_id"`).FindAll(body, -1)), len(files)}
}

// visit comes, begins something and leaves in the middle of it.
func (p *provider) visit(admin *http.Client) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(rand.IntN(20_000))*time.Microsecond)
	defer cancel()
	switch rand.IntN(4) {
	case 0: // with its connection
		conn, err := grpc.NewClient(p.addr, grpc.WithTransportCredentials(insecure.NewCredentials()))
		if err != nil {
			return
		}
		defer conn.Close()
		_, _ = pb.NewCapacityProviderClient(conn).List(ctx, &pb.ListFilter{}) // answered or not
	case 1:
		if watch, err := healthpb.NewHealthClient(p.conn).Watch(ctx, &healthpb.HealthCheckRequest{}); err == nil {
			_, _ = watch.Recv() // as above
		}
	case 2:
		var d net.Dialer
		if conn, err := d.DialContext(ctx, "tcp", p.addr); err == nil {
			_, _ = io.WriteString(conn, "PRI * HTTP/2.0\r\n\r\n") // half of a greeting
			conn.Close()
		}
	case 3:
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://admin/state/backup", nil)
		if err != nil {
			return
		}
		if resp, err := admin.Do(req); err == nil {
			_, _ = resp.Body.Read(make([]byte, 1)) // and no more
			resp.Body.Close()
		}
	}
}

// TestLivesLeaveNothing: after a hundred lives of machines, and hundreds of callers
// that left in the middle, the provider holds what it held before the first.
func TestLivesLeaveNothing(t *testing.T) {
	t.Parallel()
	const machines, lives, visits = 8, 12, 40 // the last two for each machine
	dir := t.TempDir()
	socket := filepath.Join(t.TempDir(), "admin", "s")
	p := startProvider(t, environment(), nil, "--use-fake-backend", "--fake-scale=0.001", "--provider=long",
		"--state="+filepath.Join(dir, "state.db"), "--admin-socket="+socket)
	p.line(`msg="ready: calls are accepted"`)
	var d net.Dialer
	admin := &http.Client{Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(ctx context.Context, _, _ string) (net.Conn, error) { return d.DialContext(ctx, "unix", socket) },
	}}
	ids := p.machines(machines)
	before := p.held(t, dir, admin)

	var work sync.WaitGroup
	for _, id := range ids {
		work.Go(func() {
			for epoch := range int64(lives) {
				for i, end := range []pb.MachineState{idle, configured, idle, speculative} {
					if _, err := p.call(kinds[i], id, token{"long", epoch + 1, int64(i)}); err != nil {
						t.Errorf("life %d: %s of %s: %v", epoch, kinds[i], id, err)
						return
					}
					if _, err := p.await(id, end); err != nil {
						t.Errorf("life %d: %v", epoch, err)
						return
					}
				}
			}
		})
		work.Go(func() {
			for range visits {
				p.visit(admin)
			}
		})
	}
	work.Wait()

	// Idle connections end after half a minute; a few stay, as any process has.
	const few = 20
	var after held
	for end := time.Now().Add(time.Minute); ; time.Sleep(time.Second) {
		after = p.held(t, dir, admin)
		if after.goroutines <= before.goroutines+few && after.descriptors <= before.descriptors+few || time.Now().After(end) {
			break
		}
	}
	switch {
	case after.goroutines > before.goroutines+few, after.descriptors > before.descriptors+few:
		t.Errorf("after %d lives: %+v, before the first %+v", machines*lives, after, before)
	case after.hosts != 0:
		t.Errorf("%d hosts are remembered, and all are gone", after.hosts)
	case after.files != before.files:
		t.Errorf("%d files lie where there were %d", after.files, before.files)
	}
}
