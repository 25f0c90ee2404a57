package bench

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/health/grpc_health_v1"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

// sizes are the fleets that are measured.
var sizes = []int{1_000, 10_000, 100_000}

// epoch makes every run's tokens newer than those of the run before.
var epoch atomic.Int64

func init() { epoch.Store(time.Now().UnixNano()) }

// create sends a Create for each id, from so many workers, and returns how long
// each took, sorted, and all together.
func (s *server) create(ids []string, workers int) (timings, time.Duration) {
	s.b.Helper()
	work := make(chan string, len(ids))
	for _, id := range ids {
		work <- id
	}
	close(work)
	reign := epoch.Add(1)
	perWorker := make([]timings, workers)
	var wg sync.WaitGroup
	began := time.Now()
	for w := range workers {
		wg.Go(func() {
			sequence := int64(0)
			for id := range work {
				sequence++
				one := time.Now()
				_, err := s.Create(context.Background(), &pb.CreateRequest{MachineId: id, ShardId: fmt.Sprint("w", w), ShardEpoch: reign, SequenceNumber: sequence})
				if err != nil {
					s.b.Error(err)
					return
				}
				perWorker[w] = append(perWorker[w], time.Since(one))
			}
		})
	}
	wg.Wait()
	total := time.Since(began)
	all := slices.Concat(perWorker...)
	slices.Sort(all)
	return all, total
}

// alone keeps guests out of the provider's process: elsewhere than here they
// have processors and memory of their own, and take longer to boot than a
// measurement takes.
const alone = "--fake-hosts=none"

// BenchmarkCreate measures accepted Creates a second, durable and not, while
// the accepted ones go on to order servers of the fake cloud.
func BenchmarkCreate(b *testing.B) {
	for _, machines := range sizes {
		for _, workers := range []int{1, 32, 256} {
			b.Run(fmt.Sprintf("machines=%d/workers=%d", machines, workers), func(b *testing.B) {
				// One worker measures latency, many measure throughput; one pass is
				// one measurement, whatever b.N asks for.
				count := min(machines/2, map[int]int{1: 2000, 32: 20_000, 256: 20_000}[workers])
				durable, memory := timings(nil), timings(nil)
				var durableRate, memoryRate float64
				var floor timings
				for b.Loop() {
					dir := b.TempDir()
					floor = syncFloor(b, dir)
					s := serve(b, machines, filepath.Join(dir, "state.db"), alone)
					var took time.Duration
					durable, took = s.create(s.ids()[:count], workers)
					durableRate = float64(count) / took.Seconds()
					s.stop()
					floor = floor.and(syncFloor(b, dir))
					s = serve(b, machines, "", alone)
					memory, took = s.create(s.ids()[:count], workers)
					memoryRate = float64(count) / took.Seconds()
					s.stop()
				}
				b.ReportMetric(durableRate, "creates/s")
				b.ReportMetric(durableRate/memoryRate, "of-memory")
				b.ReportMetric(float64(durable.at(0.5))/float64(floor.at(0.5)), "p50/fsync")
				b.ReportMetric(float64(durable.at(0.99))/float64(floor.at(0.5)), "p99/fsync")
				record("durable Create", machines, fmt.Sprintf("%d workers, %d calls", workers, count),
					fmt.Sprintf("%.0f/s, p50 %s, p99 %s", durableRate, short(durable.at(0.5)), short(durable.at(0.99))),
					fmt.Sprintf("fsync p50 %s, p99 %s; in syncs of that p50: p50 %.1f, p99 %.1f; without --state %.0f/s (p50 %s): %.0f %%", short(floor.at(0.5)), short(floor.at(0.99)),
						ratio(durable.at(0.5), floor.at(0.5)), ratio(durable.at(0.99), floor.at(0.5)), memoryRate, short(memory.at(0.5)), 100*durableRate/memoryRate))
			})
		}
	}
}

// BenchmarkRead measures reads of an idle fleet, and Get under four writers.
func BenchmarkRead(b *testing.B) {
	for _, machines := range sizes {
		b.Run(fmt.Sprintf("machines=%d", machines), func(b *testing.B) {
			for b.Loop() {
				readOnce(b, machines)
			}
		})
	}
}

func readOnce(b *testing.B, machines int) {
	dir := b.TempDir()
	s := serve(b, machines, filepath.Join(dir, "state.db"))
	health := grpc_health_v1.NewHealthClient(s.conn)
	empty := measure(300, func() {
		if _, err := health.Check(context.Background(), &grpc_health_v1.HealthCheckRequest{}); err != nil {
			b.Fatal(err)
		}
	})
	rpc := fmt.Sprintf("empty call p50 %s", short(empty.at(0.5)))

	size := s.list(&pb.ListFilter{})
	full := measure(15, func() { s.list(&pb.ListFilter{}) })
	copies := copyFloor(size)
	b.ReportMetric(ratio(full.at(0.5), copies.at(0.5)), "list/copy")
	record("full List", machines, "not decoded", fmt.Sprintf("p50 %s for %.1f MB", short(full.at(0.5)), float64(size)/1e6),
		fmt.Sprintf("copy of the bytes %s: × %.1f", short(copies.at(0.5)), ratio(full.at(0.5), copies.at(0.5))))

	ids := s.ids()
	head := s.revision()
	none := measure(300, func() { s.list(&pb.ListFilter{SinceRevision: head}) })
	b.ReportMetric(ratio(none.at(0.5), empty.at(0.5)), "delta0/rpc")
	record("delta of 0", machines, "", "p50 "+short(none.at(0.5)), fmt.Sprintf("%s: × %.1f", rpc, ratio(none.at(0.5), empty.at(0.5))))

	s.create(ids[:100], 8)
	s.quiet()
	hundred := measure(200, func() { s.list(&pb.ListFilter{SinceRevision: head}) })
	b.ReportMetric(ratio(hundred.at(0.5), empty.at(0.5)), "delta100/rpc")
	record("delta of 100", machines, "", "p50 "+short(hundred.at(0.5)), fmt.Sprintf("%s: × %.1f", rpc, ratio(hundred.at(0.5), empty.at(0.5))))

	get := func() {
		if _, err := s.Get(context.Background(), &pb.MachineRef{Id: ids[0]}); err != nil {
			b.Fatal(err)
		}
	}
	idle := measure(1000, get)
	b.ReportMetric(ratio(idle.at(0.5), empty.at(0.5)), "get/rpc")
	record("Get", machines, "idle", fmt.Sprintf("p50 %s, p99 %s", short(idle.at(0.5)), short(idle.at(0.99))), fmt.Sprintf("%s: × %.1f", rpc, ratio(idle.at(0.5), empty.at(0.5))))

	var busy timings
	var wg sync.WaitGroup
	writing := make(chan struct{})
	wg.Go(func() {
		defer close(writing)
		s.create(ids[100:min(len(ids), 4000)], 4)
	})
	for open := true; open; {
		busy = append(busy, measure(50, get)...)
		select {
		case <-writing:
			open = false
		default:
		}
	}
	wg.Wait()
	slices.Sort(busy)
	b.ReportMetric(ratio(busy.at(0.5), idle.at(0.5)), "busy/idle")
	record("Get", machines, "under 4 writers", fmt.Sprintf("p50 %s, p99 %s", short(busy.at(0.5)), short(busy.at(0.99))),
		fmt.Sprintf("idle: p50 × %.1f, p99 × %.1f", ratio(busy.at(0.5), idle.at(0.5)), ratio(busy.at(0.99), idle.at(0.99))))
}

// revision is the head of the list.
func (s *server) revision() []byte {
	s.b.Helper()
	list, err := s.List(context.Background(), &pb.ListFilter{States: []pb.MachineState{pb.MachineState_MACHINE_STATE_FAILED}})
	if err != nil {
		s.b.Fatal(err)
	}
	return list.GetRevision()
}

// quiet waits until nothing is in transition.
func (s *server) quiet() {
	s.b.Helper()
	for {
		list, err := s.List(context.Background(), &pb.ListFilter{States: []pb.MachineState{pb.MachineState_MACHINE_STATE_CREATING}, MaxResults: 1})
		if err != nil {
			s.b.Fatal(err)
		}
		if len(list.GetMachines()) == 0 {
			return
		}
		time.Sleep(20 * time.Millisecond)
	}
}
