package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

// callTimeout bounds one call. Every call is answered from what is committed,
// so a second is long; a busy machine gets more.
const callTimeout = 10 * time.Second

// token is a fencing token: the provider accepts each only once a machine, and
// none that is older than one it accepted.
type token struct {
	shard           string
	epoch, sequence int64
}

// shard is BigFleet's side of the wire: one shard in one epoch, which numbers
// its mutating calls.
type shard struct {
	conn   *grpc.ClientConn
	client pb.CapacityProviderClient
	last   token
}

// dial returns a shard of the id and epoch. It connects when it is first
// called, and again whenever the provider comes back.
func dial(addr string, tlsConfig *tls.Config, id string, epoch int64) (*shard, error) {
	retry := backoff.DefaultConfig
	retry.BaseDelay, retry.MaxDelay = 50*time.Millisecond, time.Second
	conn, err := grpc.NewClient(addr,
		grpc.WithTransportCredentials(credentials.NewTLS(tlsConfig)),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: retry, MinConnectTimeout: callTimeout}))
	if err != nil {
		return nil, fmt.Errorf("dial %s: %w", addr, err)
	}
	return &shard{conn: conn, client: pb.NewCapacityProviderClient(conn), last: token{shard: id, epoch: epoch}}, nil
}

func (s *shard) close() error { return s.conn.Close() }

// next numbers a call.
func (s *shard) next() token {
	s.last.sequence++
	return s.last
}

// call is a mutating call on one machine.
type call func(ctx context.Context, machine string, t token) (*pb.TransitionAck, error)

func (s *shard) create(ctx context.Context, machine string, t token) (*pb.TransitionAck, error) {
	return s.client.Create(ctx, &pb.CreateRequest{
		MachineId: machine, ShardId: t.shard, ShardEpoch: t.epoch, SequenceNumber: t.sequence,
	})
}

// configure returns the call that binds machines to the cluster.
func (s *shard) configure(cluster string, blob []byte, metadata map[string]string) call {
	return func(ctx context.Context, machine string, t token) (*pb.TransitionAck, error) {
		return s.client.Configure(ctx, &pb.ConfigureRequest{
			MachineId: machine, ClusterId: cluster, BootstrapBlob: blob, ShardMetadata: metadata,
			ShardId: t.shard, ShardEpoch: t.epoch, SequenceNumber: t.sequence,
		})
	}
}

// drain returns the call that unbinds machines after the grace period.
func (s *shard) drain(grace time.Duration) call {
	return func(ctx context.Context, machine string, t token) (*pb.TransitionAck, error) {
		return s.client.Drain(ctx, &pb.DrainRequest{
			MachineId: machine, GracePeriodSeconds: int64(grace / time.Second),
			ShardId: t.shard, ShardEpoch: t.epoch, SequenceNumber: t.sequence,
		})
	}
}

func (s *shard) delete(ctx context.Context, machine string, t token) (*pb.TransitionAck, error) {
	return s.client.Delete(ctx, &pb.DeleteRequest{
		MachineId: machine, ShardId: t.shard, ShardEpoch: t.epoch, SequenceNumber: t.sequence,
	})
}
