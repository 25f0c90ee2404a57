package host

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strconv"
	"strings"
)

// maxFileBytes bounds what one entry of write_files may unpack to.
const maxFileBytes = 16 << 20

// file is one entry of write_files, decoded.
type file struct {
	path    string // absolute and clean
	mode    fs.FileMode
	content []byte
	append  bool
}

// files decodes write_files up to the first entry that is broken: there the
// real module stops too.
func (b *boot) files() ([]file, error) {
	entries, ok := b.config["write_files"].([]any)
	if !ok {
		if b.config["write_files"] != nil {
			return nil, errors.New("write_files: not a list")
		}
		return nil, nil
	}
	var files []file
	for i, e := range entries {
		f, err := decodeFile(e)
		if err != nil {
			return files, fmt.Errorf("write_files[%d]: %w", i, err)
		}
		if f.path != "" {
			files = append(files, f)
		}
	}
	return files, nil
}

func decodeFile(entry any) (file, error) {
	e, ok := entry.(map[string]any)
	if !ok {
		return file{}, errors.New("not a mapping")
	}
	name, ok := e["path"].(string)
	if !ok || name == "" {
		return file{}, nil // the module warns and goes on
	}
	f := file{path: path.Clean("/" + name), mode: 0o644}
	switch perm := e["permissions"].(type) {
	case int:
		f.mode = fs.FileMode(perm) & fs.ModePerm
	case string:
		if n, err := strconv.ParseUint(strings.TrimPrefix(perm, "0o"), 8, 12); err == nil {
			f.mode = fs.FileMode(n) & fs.ModePerm
		}
	}
	f.append, _ = e["append"].(bool)
	content, _ := e["content"].(string)
	encoding, _ := e["encoding"].(string)
	var err error
	if f.content, err = decodeContent([]byte(content), encoding); err != nil {
		return file{}, fmt.Errorf("%s: %w", f.path, err)
	}
	return f, nil
}

// decodeContent undoes the encodings of cloud-init's write_files; any other
// name counts as text.
func decodeContent(content []byte, encoding string) ([]byte, error) {
	encoding = strings.ToLower(strings.TrimSpace(encoding))
	zip, base, both := strings.Cut(encoding, "+")
	if !both {
		zip, base = encoding, encoding
	}
	if base == "b64" || base == "base64" {
		text := strings.Join(strings.Fields(string(content)), "")
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return nil, err
		}
		content = raw
	}
	if zip != "gz" && zip != "gzip" {
		return content, nil
	}
	r, err := gzip.NewReader(bytes.NewReader(content))
	if err != nil {
		return nil, err
	}
	content, err = io.ReadAll(io.LimitReader(r, maxFileBytes+1))
	if err == nil && len(content) > maxFileBytes {
		err = fmt.Errorf("over %d bytes unpacked", maxFileBytes)
	}
	return content, err
}
