package machine

import (
	"testing"
	"unsafe"
)

// TestSize: a fleet of 100,000 pays for each byte. The allocator has room for 256
// and then for 288.
func TestSize(t *testing.T) {
	if n := unsafe.Sizeof(Record{}); n > 256 {
		t.Errorf("a record takes %d bytes", n)
	}
}
