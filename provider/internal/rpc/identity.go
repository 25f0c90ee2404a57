package rpc

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
	"bigfleet-providers/provider/internal/identity"
)

// readMethods are open to every identity.
var readMethods = map[string]bool{
	pb.CapacityProvider_Get_FullMethodName:  true,
	pb.CapacityProvider_List_FullMethodName: true,
}

// authorise judges a call of this service by the caller's certificate. required
// refuses callers whose certificate says nothing.
func authorise(ctx context.Context, method string, req any, required bool) error {
	if !strings.HasPrefix(method, "/"+pb.CapacityProvider_ServiceDesc.ServiceName+"/") {
		return nil
	}
	id, err := caller(ctx)
	denied := func(why string) error { return status.Error(codes.PermissionDenied, why) }
	switch {
	case err != nil:
		return denied("the client certificate carries " + err.Error())
	case id.Role == identity.None && required:
		return denied("the client certificate carries no bigfleet:// identity, and this provider requires one (--require-shard-identity)")
	case id.Role == identity.None || readMethods[method]:
		return nil
	case id.Role == identity.Shard:
		if in, ok := req.(fenced); ok && in.GetShardId() == id.Shard {
			return nil
		}
		return denied("the client certificate is shard " + id.Shard + "'s; it may only send that shard_id")
	default:
		return denied("the client certificate may only read")
	}
}

// caller is who the certificate of a call's connection says it is.
func caller(ctx context.Context) (identity.Identity, error) {
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(info.State.VerifiedChains) > 0 {
			return identity.Of(info.State.VerifiedChains[0][0])
		}
	}
	return identity.Identity{}, nil
}

// Denials is told of calls that a certificate does not allow.
type Denials func(method string, err error)

// Authorise is the interceptor that holds callers to their certificate's
// identity.
func Authorise(required bool, denied Denials) grpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, info *grpc.UnaryServerInfo, next grpc.UnaryHandler) (any, error) {
		if err := authorise(ctx, info.FullMethod, req, required); err != nil {
			denied(info.FullMethod, err)
			return nil, err
		}
		return next(ctx, req)
	}
}
