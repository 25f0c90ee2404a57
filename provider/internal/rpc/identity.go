package rpc

import (
	"context"
	"crypto/x509"
	"net/url"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

// role is what a client certificate may do.
type role int

const (
	roleNone    role = iota // no identity of ours: not restricted unless identities are required
	roleShard               // may mutate under its own shard id
	roleReader              // may only read (bigfleet://readonly, bigfleet://admin)
	roleInvalid             // an identity of ours that is malformed or ambiguous
)

type identity struct {
	role  role
	shard string
}

// identityOf reads the URI SANs of a verified client certificate.
func identityOf(cert *x509.Certificate) identity {
	var found []*url.URL
	for _, u := range cert.URIs {
		if u.Scheme == "bigfleet" {
			found = append(found, u)
		}
	}
	if len(found) == 0 {
		return identity{role: roleNone}
	}
	if len(found) > 1 {
		return identity{role: roleInvalid}
	}
	switch u := found[0]; {
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "":
		return identity{role: roleInvalid} // whatever it is meant to restrict, we would not
	case (u.Host == "readonly" || u.Host == "admin") && (u.Path == "" || u.Path == "/"):
		return identity{role: roleReader}
	case u.Host == "shard" && len(u.Path) > 1:
		return identity{role: roleShard, shard: strings.TrimPrefix(u.Path, "/")}
	default:
		return identity{role: roleInvalid}
	}
}

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
	id := identity{role: roleNone}
	if p, ok := peer.FromContext(ctx); ok {
		if info, ok := p.AuthInfo.(credentials.TLSInfo); ok && len(info.State.VerifiedChains) > 0 {
			id = identityOf(info.State.VerifiedChains[0][0])
		}
	}
	if readMethods[method] && id.role != roleInvalid && (id.role != roleNone || !required) {
		return nil
	}
	denied := func(why string) error { return status.Error(codes.PermissionDenied, why) }
	switch id.role {
	case roleNone:
		if required {
			return denied("the client certificate carries no bigfleet:// identity, and this provider requires one (--require-shard-identity)")
		}
		return nil
	case roleShard:
		if in, ok := req.(fenced); ok && in.GetShardId() == id.shard {
			return nil
		}
		return denied("the client certificate is shard " + id.shard + "'s; it may only send that shard_id")
	case roleReader:
		return denied("the client certificate may only read")
	default:
		return denied("the client certificate must carry exactly one of bigfleet://shard/ID, bigfleet://readonly, bigfleet://admin")
	}
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
