package cloudinit

import (
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime/quotedprintable"
	"strings"
)

// The operator's MIME message is read by the rules of Python's email parser,
// which cloud-init uses: headers also end at the first line that is none, and a
// boundary may hold any character. Its leaves are sent on as parts of ours, so
// that no other parser can find something else in it than what was judged.

// maxNesting bounds multiparts within multiparts.
const maxNesting = 8

// messageParts returns the leaves of a MIME message, each judged.
func messageParts(text string) ([]*part, error) {
	head, body := readHead(splitLines(text))
	if head.get("Content-Type") == "" {
		line, _, _ := strings.Cut(text, "\n")
		return nil, fmt.Errorf("begins with %.40q; want #cloud-config, #!, #include or another header that cloud-init knows, or a MIME message with a Content-Type", line)
	}
	return leaves(head, body, "text/plain", 0)
}

// head is the header of a message or of a part.
type head []field

type field struct{ name, value, raw string }

// get returns the first value, as Python's parser does.
func (h head) get(name string) string {
	for _, f := range h {
		if strings.EqualFold(f.name, name) {
			return f.value
		}
	}
	return ""
}

// text is the header as it was written.
func (h head) text() string {
	var lines []string
	for _, f := range h {
		lines = append(lines, f.raw)
	}
	return strings.Join(lines, "\n")
}

// splitLines keeps the ends of the lines.
func splitLines(text string) []string {
	var lines []string
	for text != "" {
		n := strings.IndexAny(text, "\r\n") + 1
		if n == 0 {
			n = len(text)
		}
		lines = append(lines, text[:n])
		text = text[n:]
	}
	return lines
}

// readHead splits lines into header and body. The empty line between them may be
// missing.
func readHead(lines []string) (head, []string) {
	var h head
	for i, line := range lines {
		text := strings.TrimRight(line, "\r\n")
		name, value, found := strings.Cut(text, ":")
		switch {
		case text == "":
			return h, lines[i+1:]
		case i == 0 && strings.HasPrefix(line, "From "): // a mailbox's, as write-mime-multipart leaves it
		case text[0] == ' ' || text[0] == '\t':
			if len(h) > 0 { // otherwise it continues nothing, and is passed over
				last := &h[len(h)-1]
				last.value += text
				last.raw += "\n" + text
			}
		case !found || !printable(name) || strings.Contains(name, " "):
			return h, lines[i:]
		case name != "":
			h = append(h, field{name, strings.TrimLeft(value, " \t"), text})
		}
	}
	return h, nil
}

// contentType reads a Content-Type as leniently as cloud-init's parser: what is
// no type is text/plain, and a value needs no quotes.
func contentType(value, otherwise string) (mediaType string, params map[string]string) {
	if value == "" {
		return otherwise, nil
	}
	params = map[string]string{}
	for i, piece := range splitOutsideQuotes(value) {
		if i == 0 {
			mediaType = strings.ToLower(strings.TrimSpace(piece))
			continue
		}
		name, text, _ := strings.Cut(piece, "=")
		name, text = strings.ToLower(strings.TrimSpace(name)), strings.TrimSpace(text)
		if n := len(text); n > 1 && text[0] == '"' && text[n-1] == '"' {
			text = strings.NewReplacer(`\\`, `\`, `\"`, `"`).Replace(text[1 : n-1])
		} else if n > 1 && text[0] == '<' && text[n-1] == '>' {
			text = text[1 : n-1]
		}
		if _, taken := params[name]; !taken {
			params[name] = text
		}
	}
	if strings.Count(mediaType, "/") != 1 {
		mediaType = "text/plain"
	}
	return mediaType, params
}

// splitOutsideQuotes splits at semicolons.
func splitOutsideQuotes(value string) []string {
	var pieces []string
	begin, quoted := 0, false
	for i := range len(value) {
		switch c := value[i]; {
		case c == '"' && (i == 0 || value[i-1] != '\\'):
			quoted = !quoted
		case c == ';' && !quoted:
			pieces = append(pieces, value[begin:i])
			begin = i + 1
		}
	}
	return append(pieces, value[begin:])
}

// leaves returns the parts of a message that are no multiparts.
func leaves(h head, body []string, otherwise string, depth int) ([]*part, error) {
	mediaType, params := contentType(h.get("Content-Type"), otherwise)
	if !strings.HasPrefix(mediaType, "multipart/") {
		p, err := leaf(h, mediaType, strings.Join(body, ""))
		if err != nil {
			return nil, err
		}
		return []*part{p}, nil
	}
	if depth == maxNesting {
		return nil, fmt.Errorf("MIME multiparts are nested over %d deep", maxNesting)
	}
	pieces, err := splitMultipart(body, strings.TrimRight(params["boundary"], " \t"))
	if err != nil {
		return nil, err
	}
	otherwise = "text/plain" // RFC 2045, 5.2
	if mediaType == "multipart/digest" {
		otherwise = "message/rfc822" // RFC 2046, 5.1.5
	}
	var parts []*part
	var errs []error
	for i, piece := range pieces {
		inner, rest := readHead(piece)
		found, err := leaves(inner, rest, otherwise, depth+1)
		if err != nil {
			errs = append(errs, fmt.Errorf("MIME part %d: %w", i+1, err))
		}
		parts = append(parts, found...)
	}
	return parts, errors.Join(errs...)
}

// splitMultipart returns the lines of each part.
func splitMultipart(body []string, boundary string) ([][]string, error) {
	if boundary == "" {
		return nil, errors.New("MIME multipart without a boundary")
	}
	var pieces [][]string
	begin := -1 // of the part, if one has begun
	for i, line := range body {
		rest, found := strings.CutPrefix(line, "--"+boundary)
		rest, closing := strings.CutPrefix(rest, "--")
		if !found || strings.Trim(rest, " \t\r\n") != "" {
			continue
		}
		if begin >= 0 && begin < i {
			piece := append([]string(nil), body[begin:i]...)
			last := &piece[len(piece)-1] // its line end belongs to the boundary
			*last = strings.TrimRight(*last, "\r\n")
			pieces = append(pieces, piece)
		}
		begin = i + 1
		if closing && len(pieces) > 0 {
			return pieces, nil
		}
	}
	if begin < 0 {
		return nil, fmt.Errorf("MIME multipart without parts: no line begins with --%s; is the text indented?", boundary)
	}
	if len(pieces) == 0 && begin >= len(body) {
		return nil, errors.New("MIME multipart without parts")
	}
	return nil, fmt.Errorf("MIME multipart is cut off: want a closing boundary, the line --%s--", boundary)
}

// leaf judges a part and makes it one of ours, encoded as it was.
func leaf(h head, mediaType, body string) (*part, error) {
	content, err := decodeTransfer(h.get("Content-Transfer-Encoding"), body)
	if err != nil {
		return nil, err
	}
	if err := judge(mediaType, content); err != nil {
		return nil, err
	}
	if h.get("Content-Type") == "" {
		h = append(head{{raw: "Content-Type: " + mediaType}}, h...)
	}
	return &part{header: h.text(), body: []byte(body)}, nil
}

func decodeTransfer(encoding, body string) ([]byte, error) {
	switch strings.ToLower(encoding) {
	case "", "7bit", "8bit":
		return []byte(body), nil
	case "base64":
		content, err := base64.StdEncoding.DecodeString(strings.Join(strings.Fields(body), ""))
		if err != nil {
			return nil, fmt.Errorf("Content-Transfer-Encoding base64: %w", err)
		}
		return content, nil
	case "quoted-printable":
		content, err := io.ReadAll(quotedprintable.NewReader(strings.NewReader(body)))
		if err != nil {
			return nil, fmt.Errorf("Content-Transfer-Encoding quoted-printable: %w", err)
		}
		return content, nil
	}
	return nil, fmt.Errorf("Content-Transfer-Encoding %q, want 7bit, 8bit, base64 or quoted-printable", encoding)
}
