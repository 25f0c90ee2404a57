package cloudinit

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/textproto"
	"strings"
	"unicode/utf8"

	"gopkg.in/yaml.v3"
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
	{"#cloud-config-archive", "text/cloud-config-archive"},
	{"#cloud-config-jsonp", "text/cloud-config-jsonp"},
	{"## template: jinja", "text/jinja2"},
	{"#cloud-boothook", "text/cloud-boothook"},
	{"#include-once", "text/x-include-once-url"},
	{"#cloud-config", "text/cloud-config"},
	{"#part-handler", "text/part-handler"},
	{"#include", "text/x-include-url"},
	{"#!", "text/x-shellscript"},
}

func mediaTypeOf(content []byte) string {
	start := strings.ToLower(string(content[:min(len(content), 64)]))
	for _, k := range kinds {
		if strings.HasPrefix(start, k.prefix) {
			return k.mediaType
		}
	}
	return ""
}

// parseBase turns the operator's user data into a part. A BOM, CRLF and blank
// lines in front are taken out: cloud-init or the kernel would trip over them
// without a word. It returns nil when there is none.
func parseBase(raw []byte) (*part, error) {
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
		if err := checkContent(mediaType, text); err != nil {
			return nil, fmt.Errorf("base user data: %w", err)
		}
		return textPart(mediaType, "", text), nil
	}
	p, err := mimePart(text)
	if err != nil {
		return nil, fmt.Errorf("base user data: %w", err)
	}
	return p, nil
}

// mimePart reads user data that begins with MIME headers.
func mimePart(text []byte) (*part, error) {
	line, _, _ := bytes.Cut(text, []byte("\n"))
	unknown := fmt.Errorf("begins with %.40q; want #cloud-config, #!, #include or another header that cloud-init knows, or a MIME message", line)
	head, body, ok := bytes.Cut(text, []byte("\n\n"))
	if !ok {
		return nil, unknown
	}
	h, err := textproto.NewReader(bufio.NewReader(bytes.NewReader(append(bytes.Clone(head), "\n\n"...)))).ReadMIMEHeader()
	if err != nil || h.Get("Content-Type") == "" {
		return nil, unknown
	}
	if err := checkMIME(h, bytes.NewReader(body), 0); err != nil {
		return nil, err
	}
	return &part{header: string(head), body: body}, nil
}

// maxNesting bounds multiparts within multiparts.
const maxNesting = 8

// checkMIME judges one part of the operator's MIME message and those in it.
func checkMIME(h textproto.MIMEHeader, body io.Reader, depth int) error {
	mediaType, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil {
		return fmt.Errorf("MIME Content-Type %.60q: %w", h.Get("Content-Type"), err)
	}
	if !strings.HasPrefix(mediaType, "multipart/") {
		return checkLeaf(h, mediaType, body)
	}
	if depth == maxNesting {
		return fmt.Errorf("MIME multiparts are nested over %d deep", maxNesting)
	}
	if params["boundary"] == "" {
		return errors.New("MIME multipart without a boundary")
	}
	r := multipart.NewReader(body, params["boundary"])
	for n := 1; ; n++ {
		p, err := r.NextRawPart()
		switch {
		case errors.Is(err, io.EOF) && n > 1:
			return nil
		case errors.Is(err, io.EOF):
			return errors.New("MIME multipart without parts")
		case err != nil:
			return fmt.Errorf("MIME part %d: %w", n, cutOff(err))
		}
		if p.Header.Get("Content-Type") == "" {
			p.Header.Set("Content-Type", "text/plain") // RFC 2045, 5.2
		}
		if err := checkMIME(p.Header, p, depth+1); err != nil {
			return fmt.Errorf("MIME part %d: %w", n, err)
		}
	}
}

func checkLeaf(h textproto.MIMEHeader, mediaType string, body io.Reader) error {
	switch encoding := strings.ToLower(h.Get("Content-Transfer-Encoding")); encoding {
	case "", "7bit", "8bit":
	case "base64":
		body = base64.NewDecoder(base64.StdEncoding, body)
	case "quoted-printable":
		body = quotedprintable.NewReader(body)
	default:
		return fmt.Errorf("Content-Transfer-Encoding %q, want 7bit, 8bit, base64 or quoted-printable", encoding)
	}
	content, err := io.ReadAll(body)
	if err != nil {
		return cutOff(err)
	}
	switch mediaType {
	case "text/plain", "text/x-not-multipart", "application/octet-stream":
		// cloud-init looks into these itself.
		mediaType = mediaTypeOf(bytes.TrimLeft(content, " \t\r\n"))
	}
	return checkContent(mediaType, content)
}

// cutOff explains the most likely reason of a message that ends too early.
func cutOff(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("it is cut off; is the closing boundary missing? %w", err)
	}
	return err
}

// checkContent finds what would take our own files along when it goes wrong.
func checkContent(mediaType string, content []byte) error {
	if mediaType != "text/cloud-config" {
		return nil
	}
	var doc map[string]any
	if err := yaml.Unmarshal(content, &doc); err != nil {
		return fmt.Errorf("#cloud-config: %w", err)
	}
	if v, ok := doc["write_files"]; ok {
		if _, isList := v.([]any); !isList {
			return errors.New("#cloud-config: write_files is not a list, so cloud-init would merge nothing into it")
		}
	}
	return nil
}
