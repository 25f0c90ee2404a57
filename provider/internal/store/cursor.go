package store

import (
	"encoding/binary"
	"hash/crc32"
)

// A cursor is the instance of the store, what is left to read and a checksum of
// both: one of another state file, or with one byte changed, is foreign. What is
// left is mostly what changes after a revision. That is then all there is of it, as
// in every cursor of the first releases. In the middle of a walk that did not begin
// at the oldest machine, spans come before it.
const (
	instanceBytes = 16
	checksumBytes = 4
	cursorBytes   = instanceBytes + 8 + checksumBytes
	spanBytes     = 16
	maxSpans      = 3
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// cursor encodes what is left to read, of which the last span is endless.
func (s *Store) cursor(left []span) []byte {
	c := make([]byte, 0, instanceBytes+maxSpans*spanBytes+checksumBytes)
	c = append(c, s.instance[:]...)
	if len(left) == 1 {
		c = binary.BigEndian.AppendUint64(c, left[0].after)
	} else {
		for _, l := range left {
			c = binary.BigEndian.AppendUint64(c, l.after)
			c = binary.BigEndian.AppendUint64(c, l.to)
		}
	}
	return binary.BigEndian.AppendUint32(c, crc32.Checksum(c, castagnoli))
}

// decodeCursor returns what is left to read; ok is false for a cursor that this
// store did not make, or not of revisions up to head.
func (s *Store) decodeCursor(cursor []byte, head uint64) (left []span, ok bool) {
	n := len(cursor) - instanceBytes - checksumBytes
	if n != 8 && n != 2*spanBytes && n != 3*spanBytes {
		return nil, false
	}
	body, sum := cursor[:len(cursor)-checksumBytes], cursor[len(cursor)-checksumBytes:]
	if [instanceBytes]byte(body[:instanceBytes]) != s.instance ||
		binary.BigEndian.Uint32(sum) != crc32.Checksum(body, castagnoli) {
		return nil, false
	}
	body = body[instanceBytes:]
	if n == 8 {
		left = []span{{binary.BigEndian.Uint64(body), endless}}
	} else {
		for ; len(body) > 0; body = body[spanBytes:] {
			left = append(left, span{binary.BigEndian.Uint64(body), binary.BigEndian.Uint64(body[8:])})
		}
	}
	for _, l := range left {
		if l.after > head || l.to != endless && l.to > head {
			return nil, false // of revisions to come: of another copy of the file
		}
	}
	return left, true
}
