package host

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net/mail"
	"net/textproto"
	"strings"

	"gopkg.in/yaml.v3"
)

// boot is what cloud-init finds in user data.
type boot struct {
	config  map[string]any // the merged cloud-config
	scripts []string
	// ignored says what a real guest would have acted on or stumbled over, and
	// this one passed by.
	ignored []string
}

// MIME types of parts that a host acts on; others are named in boot.ignored.
const (
	typeCloudConfig = "text/cloud-config"
	typeScript      = "text/x-shellscript"
)

// maxNesting bounds multiparts within multiparts.
const maxNesting = 8

// readUserData does with user data what cloud-init does before it runs any
// module. A part that is broken is passed by, as cloud-init does; an error
// means that nothing could be read.
//
// It is stricter than today's cloud-init in one thing: blank lines in front of
// the header are not forgiven, since older versions do not.
func readUserData(data []byte) (boot, error) {
	b := boot{config: map[string]any{}}
	if len(data) == 0 {
		return b, errors.New("no user data")
	}
	if !isMIME(data) {
		b.add(kindOf(data), "", data)
	} else {
		msg, err := mail.ReadMessage(bytes.NewReader(data))
		if err != nil {
			return b, fmt.Errorf("MIME headers: %w", err)
		}
		if err := b.addMIME(textproto.MIMEHeader(msg.Header), msg.Body, 0); err != nil {
			return b, err
		}
	}
	if len(b.config) == 0 && len(b.scripts) == 0 {
		return b, fmt.Errorf("nothing to act on: %s", strings.Join(b.ignored, "; "))
	}
	return b, nil
}

// isMIME is cloud-init's own test (cloudinit/user_data.py, convert_string).
func isMIME(data []byte) bool {
	return bytes.Contains(bytes.ToLower(data[:min(len(data), 4096)]), []byte("mime-version:"))
}

func kindOf(content []byte) string {
	start := strings.ToLower(string(content[:min(len(content), 32)]))
	switch {
	case strings.HasPrefix(start, "#!"):
		return typeScript
	case strings.HasPrefix(start, "#cloud-config-"):
		return "text/cloud-config-archive or -jsonp"
	case strings.HasPrefix(start, "#cloud-config"):
		return typeCloudConfig
	case strings.HasPrefix(start, "#include"):
		return "text/x-include-url"
	}
	return "text/x-not-multipart"
}

func (b *boot) addMIME(h textproto.MIMEHeader, body io.Reader, depth int) error {
	mediaType, params := "text/plain", map[string]string(nil) // RFC 2045, 5.2
	if declared := h.Get("Content-Type"); declared != "" {
		var err error
		if mediaType, params, err = mime.ParseMediaType(declared); err != nil {
			return fmt.Errorf("MIME Content-Type: %w", err)
		}
	}
	if strings.HasPrefix(mediaType, "multipart/") {
		if depth == maxNesting {
			return fmt.Errorf("MIME multiparts nested over %d deep", maxNesting)
		}
		parts := multipart.NewReader(body, params["boundary"])
		for {
			p, err := parts.NextRawPart()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err != nil {
				return fmt.Errorf("MIME part: %w", err)
			}
			if err := b.addMIME(p.Header, p, depth+1); err != nil {
				return err
			}
		}
	}
	switch strings.ToLower(h.Get("Content-Transfer-Encoding")) {
	case "base64":
		body = base64.NewDecoder(base64.StdEncoding, body)
	case "quoted-printable":
		body = quotedprintable.NewReader(body)
	}
	content, err := io.ReadAll(body)
	if err != nil {
		return fmt.Errorf("MIME part of type %s: %w", mediaType, err)
	}
	switch mediaType {
	case "text/plain", "text/x-not-multipart", "application/octet-stream", typeScript:
		// What cloud-init looks into for itself (TYPE_NEEDED).
		mediaType = kindOf(content)
	}
	header := h.Get("Merge-Type")
	if header == "" {
		header = h.Get("X-Merge-Type")
	}
	b.add(mediaType, header, content)
	return nil
}

func (b *boot) add(mediaType, mergeHeader string, content []byte) {
	switch mediaType {
	case typeScript:
		b.scripts = append(b.scripts, string(content))
	case typeCloudConfig:
		if err := b.mergeConfig(mergeHeader, content); err != nil {
			b.ignored = append(b.ignored, fmt.Sprintf("a cloud-config: %v", err))
		}
	default:
		b.ignored = append(b.ignored, "a part of type "+mediaType)
	}
}

func (b *boot) mergeConfig(header string, content []byte) error {
	var part map[string]any
	if err := yaml.Unmarshal(content, &part); err != nil {
		return err
	}
	m, err := newMerger(part, header)
	if err != nil {
		return err
	}
	merged, ok := m.merge(b.config, part).(map[string]any)
	if !ok {
		return errors.New("the merge gives no mapping")
	}
	b.config = merged
	return nil
}

// starts tells whether anything that runs at the end of the boot names the
// program.
func (b *boot) starts(program string) bool {
	if commands, ok := b.config["runcmd"].([]any); ok {
		for _, c := range commands {
			if strings.Contains(fmt.Sprint(c), program) {
				return true
			}
		}
	}
	for _, s := range b.scripts {
		if strings.Contains(s, program) {
			return true
		}
	}
	return false
}
