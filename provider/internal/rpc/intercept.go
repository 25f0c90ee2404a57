package rpc

import (
	"context"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"bigfleet-providers/provider/internal/machine"
	"bigfleet-providers/provider/internal/telemetry"
)

// Recover turns a panic in a handler into INTERNAL, so that one bad call does
// not take the process down, and tells observe about it.
func Recover(log *slog.Logger, observe func()) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (resp any, err error) {
		defer func() {
			if p := recover(); p != nil {
				observe()
				log.Error("panic in a call", "method", info.FullMethod, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
				err = status.Error(codes.Internal, "internal error; see the provider's log")
			}
		}()
		return next(ctx, req)
	}
}

// Measure tells observe about each call, and logs the refused ones: requests
// themselves are never logged, they carry blobs.
func Measure(log *slog.Logger, observe func(method string, code codes.Code, took time.Duration)) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		began := time.Now()
		resp, err := next(ctx, req)
		code := status.Code(err)
		observe(info.FullMethod, code, time.Since(began))
		if err != nil {
			attrs := []any{telemetry.KeyMethod, info.FullMethod, "code", code.String(), telemetry.KeyError, status.Convert(err).Message()}
			if in, ok := req.(interface{ GetMachineId() string }); ok {
				attrs = append(attrs, telemetry.KeyMachine, in.GetMachineId()[:min(len(in.GetMachineId()), machine.MaxIDBytes)])
			}
			log.Warn("call refused", attrs...)
		}
		return resp, err
	}
}
