package rpc

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"bigfleet-providers/provider/internal/machine"
)

// codeOf is the one table from our verdicts to gRPC codes. FAILED_PRECONDITION
// means a stale fencing token and nothing else: the shard pages a human on it.
func codeOf(c machine.Code) codes.Code {
	switch c {
	case machine.InvalidArgument:
		return codes.InvalidArgument
	case machine.Stale:
		return codes.FailedPrecondition
	case machine.NotFound:
		return codes.NotFound
	case machine.Busy:
		return codes.Aborted
	case machine.Unsupported:
		return codes.Unimplemented
	case machine.Exhausted:
		return codes.ResourceExhausted
	case machine.Unavailable:
		return codes.Unavailable
	default:
		return codes.Internal
	}
}

// statusOf makes the status that a caller sees.
func statusOf(err error) error {
	var refused *machine.Error
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		return status.Error(codeOf(refused.Code), refused.Text)
	case errors.Is(err, context.Canceled):
		return status.Error(codes.Canceled, "the call was cancelled")
	case errors.Is(err, context.DeadlineExceeded):
		return status.Error(codes.DeadlineExceeded, "the call's deadline passed")
	default:
		if _, ok := status.FromError(err); ok {
			return err
		}
		return status.Error(codes.Internal, err.Error())
	}
}
