package cloudinit

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// part is one entry of a MIME multipart: header lines without the empty line
// that ends them, and an encoded body.
type part struct {
	header string
	body   []byte
}

// kinds maps how user data begins to its MIME type, longest first; cloud-init
// tells them apart in the same way (cloudinit/handlers/__init__.py).
var kinds = []struct{ prefix, mediaType string }{
	{"#cloud-config-archive", typeArchive},
	{"#cloud-config-jsonp", typePatch},
	{"## template: jinja", typeTemplate},
	{"#cloud-boothook", "text/cloud-boothook"},
	{"#include-once", "text/x-include-once-url"},
	{"#cloud-config", typeConfig},
	{"#part-handler", "text/part-handler"},
	{"#include", "text/x-include-url"},
	{"#!", typeScript},
}

// mediaTypeOf returns the type by which cloud-init handles content, "" for none.
func mediaTypeOf(content []byte) string {
	content = bytes.TrimLeft(content, " \t\r\n")
	start := strings.ToLower(string(content[:min(len(content), 64)]))
	for _, k := range kinds {
		if strings.HasPrefix(start, k.prefix) {
			return k.mediaType
		}
	}
	return ""
}

// parseBase turns the operator's user data into parts, none if there is none. A
// BOM, CRLF and blank lines in front are taken out: cloud-init or the kernel
// would trip over them without a word.
func parseBase(raw []byte) ([]*part, error) {
	text := bytes.TrimPrefix(raw, []byte("\xef\xbb\xbf"))
	if !utf8.Valid(text) || bytes.IndexByte(text, 0) >= 0 {
		return nil, errors.New("base user data: not UTF-8 text; give it neither compressed nor in another encoding")
	}
	text = bytes.TrimLeft(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")), " \t\n")
	if len(text) == 0 {
		if len(raw) > 0 {
			return nil, errors.New("base user data: only blank lines; leave it unset for none")
		}
		return nil, nil
	}
	if mediaType := mediaTypeOf(text); mediaType != "" {
		if err := judge(mediaType, text); err != nil {
			return nil, fmt.Errorf("base user data: %w", err)
		}
		return []*part{textPart(mediaType, "", text)}, nil
	}
	parts, err := messageParts(string(text))
	if err != nil {
		return nil, fmt.Errorf("base user data: %w", err)
	}
	return parts, nil
}
