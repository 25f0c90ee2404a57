package store

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"os"
	"runtime/debug"
	"syscall"
)

// bbolt trusts its pages: a damaged one makes it panic, run for ever, or write
// over live data. So the whole structure is checked before bbolt sees it:
// ranges, page types, that no page is used twice or is also free, the order of
// all keys, and that pages are filled without a gap, which pins their counts.
// The values have checksums of their own. The format is that of bbolt 1.x,
// version 2 (internal/common of go.etcd.io/bbolt), in native byte order.
const (
	pageHeader    = 16 // id u64, flags u16, count u16, overflow u32
	element       = 16 // branch: pos u32, key size u32, page u64; leaf: flags u32, pos u32, key size u32, value size u32
	bucketHeader  = 16 // root page u64, sequence u64
	metaBytes     = 64
	minPage       = 1024
	maxPage       = 1 << 24
	metaSummed    = metaBytes - 8
	boltMagic     = 0xED0CDAED
	boltVersion   = 2
	noFreelist    = ^uint64(0)
	manyFreePages = 0xFFFF // the real count is the first entry

	branchPage   = 0x01
	leafPage     = 0x02
	metaPage     = 0x04
	freelistPage = 0x10
)

var native = binary.NativeEndian

// verify checks the structure of the database in a file of the given size.
func verify(f *os.File, size int64) (err error) {
	if size != int64(int(size)) {
		return fmt.Errorf("%d bytes are no database", size)
	}
	data, err := syscall.Mmap(int(f.Fd()), 0, int(size), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return fmt.Errorf("map: %w", err)
	}
	defer func() { err = errors.Join(err, syscall.Munmap(data)) }()
	// The disk may fail to deliver a page: an error then, not the end.
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("read: %v", p)
		}
	}()

	if foreign(data) {
		return errForeign
	}
	if size < 4096 {
		return fmt.Errorf("%d bytes are no database", size)
	}
	v := verifier{data: data}
	if err := v.meta(); err != nil {
		return err
	}
	if err := v.bucket(v.root, v.checkBuckets); err != nil {
		return err
	}
	return v.freelist()
}

// foreign says that the bytes are another program's: neither meta page has
// bbolt's magic, wherever the second may be, and what is in the place of the
// first is not the zeros that a disk leaves of one.
func foreign(data []byte) bool {
	magicAt := func(page int) bool {
		at := page + pageHeader
		return at+4 <= len(data) && native.Uint32(data[at:]) == boltMagic
	}
	if magicAt(0) {
		return false
	}
	for size := minPage; size <= maxPage; size *= 2 {
		if magicAt(size) {
			return false
		}
	}
	first := data[:min(len(data), minPage)]
	return len(bytes.Trim(first, "\x00")) > 0
}

type verifier struct {
	data           []byte
	pageSize       uint64
	pages          uint64 // the high-water mark: no page at or above it is used
	root, freePage uint64
	used           []bool
	last           []byte // the key before, in the bucket that is walked
	first          bool   // no key was seen in it
}

// meta reads both meta pages and goes on with the newer one. bbolt would do
// with one, and fall back to the state of one transaction before: what is lost
// so was acknowledged, and must not be lost in silence.
func (v *verifier) meta() error {
	size := uint64(native.Uint32(v.data[pageHeader+8:]))
	if size < minPage || size > maxPage || size&(size-1) != 0 {
		return errors.New("meta page 0 is not valid")
	}
	if uint64(len(v.data)) < 2*size {
		return errors.New("it is cut off within the first pages")
	}
	v.pageSize = size
	var newest uint64
	for id := range uint64(2) {
		p := v.data[id*size:]
		m := p[pageHeader:]
		if native.Uint64(p) != id || native.Uint16(p[8:]) != metaPage || !validMeta(m) || uint64(native.Uint32(m[8:])) != size {
			return fmt.Errorf("meta page %d is not valid", id)
		}
		if txid := native.Uint64(m[48:]); id == 0 || txid > newest {
			newest = txid
			v.root, v.freePage, v.pages = native.Uint64(m[16:]), native.Uint64(m[32:]), native.Uint64(m[40:])
		}
	}
	if have := uint64(len(v.data)) / v.pageSize; v.pages > have {
		return fmt.Errorf("it is cut off: %d pages of %d are there", have, v.pages)
	}
	v.used = make([]bool, v.pages)
	return nil
}

func validMeta(m []byte) bool {
	if len(m) < metaBytes || native.Uint32(m) != boltMagic || native.Uint32(m[4:]) != boltVersion {
		return false
	}
	h := fnv.New64a()
	h.Write(m[:metaSummed])
	return native.Uint64(m[metaSummed:]) == h.Sum64()
}

// page returns the bytes of a page with its overflow, and marks it as used.
func (v *verifier) page(id uint64) ([]byte, error) {
	if id < 2 || id >= v.pages {
		return nil, fmt.Errorf("page %d is referred to, and the pages are 2 to %d", id, v.pages-1)
	}
	head := v.data[id*v.pageSize:]
	over := uint64(native.Uint32(head[12:]))
	if got := native.Uint64(head); got != id {
		return nil, fmt.Errorf("page %d says that it is page %d", id, got)
	}
	if over >= v.pages-id {
		return nil, fmt.Errorf("page %d overflows into %d more, past the end", id, over)
	}
	for i := id; i <= id+over; i++ {
		if v.used[i] {
			return nil, fmt.Errorf("page %d is used twice", i)
		}
		v.used[i] = true
	}
	return head[:(over+1)*v.pageSize], nil
}

// bucket walks the tree below a root page; leaf judges each entry.
func (v *verifier) bucket(root uint64, leaf func(key, value []byte, flags uint32) error) error {
	last, first := v.last, v.first
	v.last, v.first = nil, true
	err := v.tree(root, nil, leaf)
	v.last, v.first = last, first
	return err
}

// tree walks a page and those below it. bound is the least key it must have,
// nil for no bound.
func (v *verifier) tree(id uint64, bound []byte, leaf func(key, value []byte, flags uint32) error) error {
	p, err := v.page(id)
	if err != nil {
		return err
	}
	switch flags := native.Uint16(p[8:]); flags {
	case leafPage:
		err = v.leaf(p, bound, leaf)
	case branchPage:
		err = v.branch(p, leaf)
	default:
		err = fmt.Errorf("type %#x in a tree", flags)
	}
	if err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	return nil
}

func (v *verifier) branch(p []byte, leaf func(key, value []byte, flags uint32) error) error {
	count := int(native.Uint16(p[10:]))
	if count == 0 {
		return errors.New("branch without entries")
	}
	end := pageHeader + count*element
	for i := range count {
		at := pageHeader + i*element
		if at+element > len(p) {
			return fmt.Errorf("%d entries do not fit", count)
		}
		e := p[at:]
		key, err := entryData(p, at, &end, native.Uint32(e), native.Uint32(e[4:]))
		if err != nil {
			return err
		}
		// Keys below entry i are at or above its key and below the next one's.
		if !v.first && bytes.Compare(key, v.last) <= 0 {
			return fmt.Errorf("key %q is out of order", key)
		}
		if err := v.tree(native.Uint64(e[8:]), key, leaf); err != nil {
			return err
		}
	}
	return nil
}

func (v *verifier) leaf(p, bound []byte, leaf func(key, value []byte, flags uint32) error) error {
	count := int(native.Uint16(p[10:]))
	end := pageHeader + count*element
	for i := range count {
		at := pageHeader + i*element
		if at+element > len(p) {
			return fmt.Errorf("%d entries do not fit", count)
		}
		e := p[at:]
		ksize := native.Uint32(e[8:])
		data, err := entryData(p, at, &end, native.Uint32(e[4:]), ksize, native.Uint32(e[12:]))
		if err != nil {
			return err
		}
		key := data[:ksize]
		if ksize == 0 || !v.first && bytes.Compare(key, v.last) <= 0 || bytes.Compare(key, bound) < 0 {
			return fmt.Errorf("key %q is out of order", key)
		}
		v.last, v.first = key, false
		if err := leaf(key, data[ksize:], native.Uint32(e)); err != nil {
			return err
		}
	}
	return nil
}

// entryData returns the bytes that the entry at an offset refers to. They must
// follow those of the entry before, which ended at *end.
func entryData(p []byte, at int, end *int, pos uint32, sizes ...uint32) ([]byte, error) {
	start, size := uint64(at)+uint64(pos), uint64(0)
	for _, s := range sizes {
		size += uint64(s)
	}
	if start != uint64(*end) || start+size > uint64(len(p)) {
		return nil, errors.New("an entry's data are not where they belong")
	}
	*end = int(start + size)
	return p[start:*end], nil
}

const bucketFlag = 0x01

// checkBuckets judges an entry of the root: all are buckets, of plain values.
func (v *verifier) checkBuckets(key, value []byte, flags uint32) error {
	if flags != bucketFlag || len(value) < bucketHeader {
		return fmt.Errorf("entry %q is not a bucket", key)
	}
	if root := native.Uint64(value); root != 0 {
		return v.bucket(root, plain)
	}
	inline := value[bucketHeader:]
	if len(inline) < pageHeader || native.Uint16(inline[8:]) != leafPage {
		return fmt.Errorf("bucket %q has no page", key)
	}
	last, first := v.last, v.first
	v.last, v.first = nil, true
	err := v.leaf(inline, nil, plain)
	v.last, v.first = last, first
	if err != nil {
		return fmt.Errorf("bucket %q: %w", key, err)
	}
	return nil
}

func plain(key, _ []byte, flags uint32) error {
	if flags != 0 {
		return fmt.Errorf("entry %q is of type %#x", key, flags)
	}
	return nil
}

// freelist checks that no free page is in use: it would be written over.
func (v *verifier) freelist() error {
	if v.freePage == noFreelist {
		return nil
	}
	p, err := v.page(v.freePage)
	if err != nil {
		return fmt.Errorf("free list: %w", err)
	}
	if flags := native.Uint16(p[8:]); flags != freelistPage {
		return fmt.Errorf("page %d: type %#x where the free list is", v.freePage, flags)
	}
	ids, count := p[pageHeader:], uint64(native.Uint16(p[10:]))
	if count == manyFreePages {
		count, ids = native.Uint64(ids), ids[8:]
	}
	if count > uint64(len(ids)/8) {
		return fmt.Errorf("free list of %d pages does not fit", count)
	}
	last := uint64(1)
	for i := range count {
		id := native.Uint64(ids[i*8:])
		if id <= last || id >= v.pages {
			return fmt.Errorf("free list: page %d is out of order or range", id)
		}
		if v.used[id] {
			return fmt.Errorf("free list: page %d is in use", id)
		}
		last = id
	}
	return nil
}
