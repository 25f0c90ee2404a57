package lifecycle

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
)

// maxLabel is the length of a DNS label (RFC 1035), and so of a node's name as
// a host name.
const maxLabel = 63

// NodeName is the Kubernetes node name of a machine: a DNS label that is the
// same for the same id and differs between ids, even where they differ only in
// what a label cannot hold.
func NodeName(machineID string) string {
	var b strings.Builder
	exact := len(machineID) <= maxLabel
	for _, r := range strings.ToLower(machineID) {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-':
			b.WriteRune(r)
		default:
			b.WriteByte('-')
		}
	}
	name := strings.Trim(b.String(), "-")
	if exact && name == machineID {
		return name
	}
	sum := sha256.Sum256([]byte(machineID))
	tail := "-" + hex.EncodeToString(sum[:5])
	if len(name) > maxLabel-len(tail) {
		name = strings.TrimRight(name[:maxLabel-len(tail)], "-")
	}
	return strings.TrimLeft(name+tail, "-")
}
