package scaleway

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"bigfleet-providers/provider/internal/cloud"
)

// The tags on everything we make. Every process in the guest can read them, so
// they carry ids and nothing else. No value can contain a comma, which would
// break the API's tag filter, and no tag can begin with AUTHORIZED_KEY=, which
// cloud-init would make a root SSH key of.
const (
	ownerKey     = "bigfleet"
	machineKey   = "bigfleet-machine"
	operationKey = "bigfleet-operation"
	clusterKey   = "bigfleet-cluster"
	lifeKey      = "bigfleet-life"
	spareKey     = "bigfleet-spare"
	epochKey     = "bigfleet-epoch"
)

// Tags is what our tags say. An empty field stands for no such tag.
type Tags struct {
	Owner     string // the provider's own name
	Machine   string
	Operation string // of the Create that made the object
	Cluster   string
	// Life is the operation whose user data the server boots with: that of Operation,
	// but for a server that a release took over which does not know of it.
	Life  string
	Spare string // since when it is no machine's and may be taken; "" when it is not
	Epoch string // of the process that wrote the tags, see cloud.OwnerEpoch
}

// OwnerTag is the tag that marks an object as the provider's.
func OwnerTag(provider string) string { return tag(ownerKey, provider) }

// OperationTag is the tag that marks what one Create made.
func OperationTag(operationID string) string { return tag(operationKey, operationID) }

// MachineTag is the tag that marks what belongs to a machine.
func MachineTag(machineID string) string { return tag(machineKey, machineID) }

// SpareTag is the tag that marks a server as nobody's, to be taken and installed
// anew by the next Create of its type.
func SpareTag(since string) string { return tag(spareKey, since) }

// List renders the tags.
func (t Tags) List() []string {
	var list []string
	for _, kv := range [][2]string{
		{ownerKey, t.Owner}, {machineKey, t.Machine}, {operationKey, t.Operation}, {clusterKey, t.Cluster}, {lifeKey, t.Life}, {spareKey, t.Spare}, {epochKey, t.Epoch},
	} {
		if kv[1] != "" {
			list = append(list, tag(kv[0], kv[1]))
		}
	}
	return list
}

// ParseTags reads our tags out of all those of an object. Of a tag that is
// there twice the first counts.
func ParseTags(list []string) Tags {
	var t Tags
	fields := map[string]*string{
		ownerKey: &t.Owner, machineKey: &t.Machine, operationKey: &t.Operation, clusterKey: &t.Cluster, lifeKey: &t.Life, spareKey: &t.Spare, epochKey: &t.Epoch,
	}
	for _, s := range list {
		key, value, ok := strings.Cut(s, "=")
		field := fields[key]
		if !ok || field == nil || *field != "" {
			continue
		}
		// A value that was edited by hand into something we never write counts as it
		// stands rather than not at all.
		*field = value
		if plain, err := url.PathUnescape(value); err == nil {
			*field = plain
		}
	}
	return t
}

// WithCluster returns the tags with the cluster's replaced, and whether that
// changed anything. Tags that are not ours stay as they are.
func WithCluster(list []string, cluster string) ([]string, bool) {
	return with(list, clusterKey, cluster)
}

// WithEpoch is WithCluster for the epoch.
func WithEpoch(list []string, epoch cloud.OwnerEpoch) ([]string, bool) {
	return with(list, epochKey, epoch.String())
}

func with(list []string, key, value string) ([]string, bool) {
	next := slices.DeleteFunc(slices.Clone(list), func(s string) bool {
		return strings.HasPrefix(s, key+"=")
	})
	if value != "" {
		next = append(next, tag(key, value))
	}
	if slices.Equal(slices.Sorted(slices.Values(list)), slices.Sorted(slices.Values(next))) {
		return list, false
	}
	return next, true
}

// Replace returns the list with all tags of ours replaced by those that t says.
// The tags of others stay.
func Replace(list []string, t Tags) []string {
	others := slices.DeleteFunc(slices.Clone(list), func(s string) bool {
		key, _, _ := strings.Cut(s, "=")
		return slices.Contains([]string{ownerKey, machineKey, operationKey, clusterKey, lifeKey, spareKey, epochKey}, key)
	})
	return append(t.List(), others...)
}

func tag(key, value string) string { return key + "=" + escape(value) }

// escape percent-encodes every byte that is not plainly harmless in a tag, a
// query and a shell.
func escape(s string) string {
	var b strings.Builder
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9',
			c == '-', c == '.', c == '_', c == ':', c == '/', c == '@':
			b.WriteByte(c)
		default:
			fmt.Fprintf(&b, "%%%02X", c)
		}
	}
	return b.String()
}

// ServerName makes a server's name, which becomes its hostname: a DNS label of
// at most 63 bytes, the same for the same operation, another for any other. The
// machine's id is in it as far as it fits, for people.
func ServerName(machineID, operationID string) string {
	const limit = 63
	sum := sha256.Sum256([]byte(machineID + "\x00" + operationID))
	suffix := "-" + hex.EncodeToString(sum[:6])

	slug := strings.Map(func(r rune) rune {
		switch {
		case 'a' <= r && r <= 'z', '0' <= r && r <= '9':
			return r
		case 'A' <= r && r <= 'Z':
			return r - 'A' + 'a'
		default:
			return '-'
		}
	}, machineID)
	if most := limit - len(suffix); len(slug) > most {
		slug = slug[:most]
	}
	if slug = strings.Trim(slug, "-"); slug == "" {
		slug = "bigfleet"
	}
	return slug + suffix
}

// maxTagBytes bounds an operator's tag. The API publishes no limit; 739 bytes
// were recorded.
const maxTagBytes = 255

// CheckTag judges a tag that an operator wants on what we make, and says why it
// is refused.
func CheckTag(tag string) error {
	lower := strings.ToLower(strings.TrimSpace(tag))
	switch {
	case lower == "":
		return errors.New("empty")
	case len(tag) > maxTagBytes:
		return fmt.Errorf("%.32q… has %d bytes, the limit is %d", tag, len(tag), maxTagBytes)
	case strings.HasPrefix(lower, "authorized_key="):
		// cloud-init's DataSourceScaleway.
		return errors.New("AUTHORIZED_KEY= would let the key's owner log in as root; add SSH keys with --base-user-data")
	case strings.HasPrefix(lower, ownerKey):
		return fmt.Errorf("%q: tags that begin with %q are this provider's own", tag, ownerKey)
	case strings.Contains(tag, ","):
		return fmt.Errorf("%q: the API takes a comma for the end of a tag", tag)
	case strings.ContainsFunc(tag, unicode.IsControl):
		return fmt.Errorf("%q holds a control character", tag)
	}
	return nil
}
