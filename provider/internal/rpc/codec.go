package rpc

import (
	"google.golang.org/grpc/encoding"
	_ "google.golang.org/grpc/encoding/proto" // registers the codec that this one wraps
	"google.golang.org/grpc/mem"
)

// encoded is a response message that is already on the wire format. It travels
// through interceptors in place of the generated message.
type encoded struct{ data mem.BufferSlice }

// pieceBytes is how much of a list is copied into one buffer. One piece a
// machine costs more in the transport than the copy. It is a size that the
// transport's pool has: of one between two sizes the larger would be kept.
const pieceBytes = 32 << 10

// join concatenates parts, which are never changed, into pieces of at most
// pieceBytes, or of one part. The pieces come from the transport's pool and go
// back to it once they are sent: a full List leaves no garbage of its size.
func join(parts [][]byte) mem.BufferSlice {
	pool := mem.DefaultBufferPool()
	var out mem.BufferSlice
	for i := 0; i < len(parts); {
		size, j := 0, i
		for ; j < len(parts) && (j == i || size+len(parts[j]) <= pieceBytes); j++ {
			size += len(parts[j])
		}
		if j == i+1 {
			out = append(out, mem.SliceBuffer(parts[i]))
			i = j
			continue
		}
		piece := pool.Get(size)
		for at := 0; i < j; i++ {
			at += copy((*piece)[at:], parts[i])
		}
		out = append(out, mem.NewBuffer(piece, pool))
	}
	return out
}

// codec passes encoded messages through and leaves all others to the protobuf
// codec.
type codec struct{ encoding.CodecV2 }

// Codec is the server's codec; install it with grpc.ForceServerCodecV2.
func Codec() encoding.CodecV2 { return codec{encoding.GetCodecV2("proto")} }

// Marshal implements encoding.CodecV2.
func (c codec) Marshal(v any) (mem.BufferSlice, error) {
	if e, ok := v.(*encoded); ok {
		return e.data, nil
	}
	return c.CodecV2.Marshal(v)
}
