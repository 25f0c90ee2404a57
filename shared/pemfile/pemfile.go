// Package pemfile reads text files of certificates and keys. It reads all that
// such a file holds, or says where it cannot.
//
// encoding/pem skips what it cannot read: of a bundle with one damaged block it
// returns the others, and nothing tells that one is missing. A program then trusts
// half of whom it should, without a word.
package pemfile

import (
	"encoding/pem"
	"errors"
	"fmt"
	"regexp"
	"strings"
)

// Block is one block of a file.
type Block struct {
	Type  string // what is behind BEGIN, such as CERTIFICATE
	Bytes []byte
	Line  int // where it begins, counted from 1
}

var (
	// first and last are the lines around a block. White space at their ends is
	// harmless.
	first = regexp.MustCompile(`^-----BEGIN ([A-Z0-9]+(?: [A-Z0-9]+)*)-----[ \t\r]*$`)
	last  = regexp.MustCompile(`^-----END ([A-Z0-9]+(?: [A-Z0-9]+)*)-----[ \t\r]*$`)
	// marker and damaged are what such lines become when they are indented, joined
	// or retyped; damaged is not looked for in lines that are comments by a #.
	marker  = regexp.MustCompile(`-----\s*(?:BEGIN|END)`)
	damaged = regexp.MustCompile(`(?i:[-\x{2010}-\x{2015}\x{2212}]{2,}\s*(?:BEGIN|END))|\b(?:BEGIN|END)\s*(?:[A-Z0-9]+\s+)*(?:CERTIFICATE|KEY|PGP)|^\s*-----+[^-\s]`)
)

const byteOrderMark = "\ufeff"

// Blocks returns all blocks of a text. What is between them is a comment. An
// error says at which block and line the text is damaged, and quotes nothing of
// it, since it may be a key.
func Blocks(text []byte) ([]Block, error) {
	var blocks []Block
	var open *Block // whose last line is still to come
	var body []string
	for i, line := range strings.Split(string(text), "\n") {
		n := i + 1
		switch begin, end := first.FindStringSubmatch(line), last.FindStringSubmatch(line); {
		case len(begin) > 0 && open == nil:
			open, body = &Block{Type: begin[1], Line: n}, nil
		case len(begin) > 0:
			return nil, fault(blocks, open.Line, n, "another block begins before this one has its END line; is the file cut off, or a line missing?")
		case len(end) > 0 && open == nil:
			return nil, fault(blocks, n, n, "an END line without a BEGIN line before it")
		case len(end) > 0 && end[1] != open.Type:
			return nil, fault(blocks, open.Line, n, "the END line says "+end[1]+", the BEGIN line "+open.Type)
		case len(end) > 0:
			var at int
			var err error
			if open.Bytes, at, err = decode(open.Type, body); err != nil {
				return nil, fault(blocks, open.Line, open.Line+at, err.Error())
			}
			blocks, open = append(blocks, *open), nil
		case marker.MatchString(line), damaged.MatchString(line) && !strings.HasPrefix(strings.TrimSpace(line), "#"):
			begun := n
			if open != nil {
				begun = open.Line
			}
			if strings.HasPrefix(line, byteOrderMark) {
				return nil, fault(blocks, begun, n, "a byte order mark is before it; save the file without one")
			}
			return nil, fault(blocks, begun, n, "a damaged BEGIN or END line, want -----BEGIN TYPE----- or -----END TYPE-----; is it indented, are dashes missing, or were files joined without a line break?")
		case open != nil:
			body = append(body, line)
		}
	}
	if open != nil {
		return nil, fault(blocks, open.Line, open.Line, "it has no END line; is the file cut off?")
	}
	return blocks, nil
}

func fault(before []Block, begun, line int, what string) error {
	if line != begun {
		what = fmt.Sprintf("line %d: %s", line, what)
	}
	return fmt.Errorf("block %d (line %d) cannot be read: %s", len(before)+1, begun, what)
}

// decode returns the bytes of a block's lines, and on an error the number of the
// line that is to blame, or of the END line for the block as a whole.
func decode(kind string, body []string) (raw []byte, at int, err error) {
	var sum string
	if strings.HasPrefix(kind, "PGP ") {
		body, sum, err = cutChecksum(body)
		if err != nil {
			return nil, len(body) + 1, err
		}
	}
	text := fmt.Sprintf("-----BEGIN %[1]s-----\n%[2]s\n-----END %[1]s-----\n", kind, strings.Join(body, "\n"))
	block, _ := pem.Decode([]byte(text))
	switch {
	case block == nil:
		for i, line := range body {
			if line = strings.TrimSpace(line); !strings.Contains(line, ":") && strings.Trim(line, base64Alphabet) != "" {
				return nil, i + 1, errors.New("not base64")
			}
		}
		return nil, len(body) + 1, errors.New("not base64; is a line missing or cut?")
	case len(block.Bytes) == 0:
		return nil, len(body) + 1, errors.New("it is empty")
	case sum != "" && sum != checksum(block.Bytes):
		return nil, len(body) + 1, errors.New("its checksum does not match; the key was damaged or changed")
	}
	return block.Bytes, 0, nil
}

const base64Alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/="
