package store

import (
	"encoding/binary"
	"hash/crc32"
)

// A cursor is the instance of the store, a revision and a checksum of both:
// one of another state file, or with one byte changed, is foreign.
const (
	instanceBytes = 16
	cursorBytes   = instanceBytes + 8 + 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// cursor encodes a revision of this store.
func (s *Store) cursor(revision uint64) []byte {
	c := make([]byte, 0, cursorBytes)
	c = append(c, s.instance[:]...)
	c = binary.BigEndian.AppendUint64(c, revision)
	return binary.BigEndian.AppendUint32(c, crc32.Checksum(c, castagnoli))
}

// revision decodes a cursor; ok is false for one that this store did not make.
func (s *Store) revision(cursor []byte) (revision uint64, ok bool) {
	if len(cursor) != cursorBytes {
		return 0, false
	}
	body, sum := cursor[:cursorBytes-4], cursor[cursorBytes-4:]
	if [instanceBytes]byte(body[:instanceBytes]) != s.instance ||
		binary.BigEndian.Uint32(sum) != crc32.Checksum(body, castagnoli) {
		return 0, false
	}
	return binary.BigEndian.Uint64(body[instanceBytes:]), true
}
