package cloudinit

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// Types of parts that say something about the configuration of ours.
const (
	typeArchive  = "text/cloud-config-archive"
	typeConfig   = "text/cloud-config"
	typePatch    = "text/cloud-config-jsonp"
	typeScript   = "text/x-shellscript"
	typeTemplate = "text/jinja2"
)

// maxUnpacked bounds what a compressed part may hold.
const maxUnpacked = 16 << 20

// gzipTypes are those that cloud-init unpacks, and stumbles over when it cannot
// (DECOMP_TYPES in cloudinit/user_data.py).
var gzipTypes = []string{
	"application/gzip", "application/gzip-compressed", "application/gzipped", "application/x-compress",
	"application/x-compressed", "application/x-gunzip", "application/x-gzip", "application/x-gzip-compressed",
}

// judge finds what would take our own files along when it goes wrong, in
// whatever cloud-init will unpack. What an #include fetches and what a
// part-handler does cannot be known before the boot.
func judge(mediaType string, content []byte) error {
	if bytes.HasPrefix(content, []byte("\x1f\x8b")) {
		unpacked, err := gunzip(content)
		if err != nil {
			return err
		}
		mediaType, content = "text/plain", unpacked
	} else if slices.Contains(gzipTypes, mediaType) {
		return fmt.Errorf("its type is %s and its content is not gzip: cloud-init would drop all user data", mediaType)
	}
	switch mediaType {
	case "text/plain", "text/x-not-multipart", "application/octet-stream", typeScript:
		// cloud-init looks into these itself.
		if found := mediaTypeOf(content); found != "" {
			mediaType = found
		}
	}
	switch mediaType {
	case typeConfig:
		return judgeConfig(content)
	case typeArchive:
		return judgeArchive(content)
	case typePatch:
		return judgePatch(content)
	case typeTemplate:
		return judgeTemplate(content)
	}
	if strings.HasPrefix(mediaType, "message/") {
		return fmt.Errorf("its type is %s: a message within a message cannot be judged; give its parts", mediaType)
	}
	return nil
}

func gunzip(content []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(content))
	if err == nil {
		content, err = io.ReadAll(io.LimitReader(r, maxUnpacked+1))
	}
	if err != nil {
		return nil, fmt.Errorf("gzip: %w", err)
	}
	if len(content) > maxUnpacked {
		return nil, fmt.Errorf("gzip: over %d bytes unpacked", maxUnpacked)
	}
	return content, nil
}

// judgeConfig judges one #cloud-config.
func judgeConfig(content []byte) error {
	var doc map[string]any
	in := yaml.NewDecoder(bytes.NewReader(content))
	if err := in.Decode(&doc); err != nil && !errors.Is(err, io.EOF) {
		return fmt.Errorf("#cloud-config: %w", err)
	}
	if in.Decode(new(yaml.Node)) == nil {
		return errors.New("#cloud-config: more than one YAML document; cloud-init would read none of them")
	}
	var errs []error
	if v, ok := doc["write_files"]; ok {
		if _, isList := v.([]any); !isList {
			errs = append(errs, errors.New("#cloud-config: write_files is not a list, so cloud-init would merge nothing into it"))
		}
	}
	for _, key := range moduleLists {
		if v, ok := doc[key]; ok {
			if err := judgeModules(key, v); err != nil {
				errs = append(errs, fmt.Errorf("#cloud-config: %s: %w", key, err))
			}
		}
	}
	return errors.Join(errs...)
}

// judgeArchive judges a list of parts in YAML. An entry that cloud-init cannot
// make a part of ends the reading of all user data.
func judgeArchive(content []byte) error {
	var entries []any
	if err := yaml.Unmarshal(content, &entries); err != nil {
		return fmt.Errorf("#cloud-config-archive: %w", err)
	}
	var errs []error
	for i, e := range entries {
		if err := judgeEntry(e); err != nil {
			errs = append(errs, fmt.Errorf("#cloud-config-archive: entry %d: %w", i+1, err))
		}
	}
	return errors.Join(errs...)
}

func judgeEntry(entry any) error {
	fields, ok := entry.(map[string]any)
	if !ok {
		text, isText := entry.(string)
		if !isText {
			return errors.New("want text, or a mapping with content and type")
		}
		fields = map[string]any{"content": text}
	}
	for name, v := range fields {
		if _, isText := v.(string); !isText && v != nil && name != "launch-index" && name != "filename" {
			return fmt.Errorf("%s: want text (for what follows, indented: %s: |)", name, name)
		}
	}
	content, _ := fields["content"].(string) // "" when it is missing, as for cloud-init
	mediaType, _ := fields["type"].(string)
	if mediaType == "" {
		if mediaType = mediaTypeOf([]byte(content)); mediaType == "" {
			mediaType = typeConfig
		}
	}
	if major, minor, ok := strings.Cut(strings.ToLower(mediaType), "/"); !ok || major == "multipart" || minor == "" {
		return fmt.Errorf("type: %q, want a MIME type such as text/cloud-config", mediaType)
	}
	return judge(strings.ToLower(mediaType), []byte(content))
}

// guarded are the keys of a cloud-config that ours depends on.
var guarded = append([]string{"write_files"}, moduleLists...)

// judgePatch judges a JSON patch of the configuration that was merged so far.
func judgePatch(content []byte) error {
	content = bytes.TrimLeft(content, " \t\r\n")
	if mediaTypeOf(content) == typePatch {
		content = content[len("#cloud-config-jsonp"):]
	}
	var ops []struct {
		Path  string
		Value any
	}
	if err := json.Unmarshal(content, &ops); err != nil {
		return fmt.Errorf("#cloud-config-jsonp: not a JSON patch: %w", err)
	}
	for _, op := range ops {
		key, below, _ := strings.Cut(strings.TrimPrefix(op.Path, "/"), "/")
		_, isList := op.Value.([]any)
		if op.Path == "" || slices.Contains(guarded, key) && (key != "write_files" || below == "" && !isList) {
			return fmt.Errorf("#cloud-config-jsonp: path %q: it would replace what the agent's own part needs; give it in a #cloud-config", op.Path)
		}
	}
	return nil
}

var (
	templateTags        = regexp.MustCompile(`(?s)\{%.*?%\}|\{#.*?#\}`)
	templateExpressions = regexp.MustCompile(`(?s)\{\{.*?\}\}`)
)

// judgeTemplate judges what the boot will render, with a word for every
// expression and all branches, and only where it says anything about ours.
func judgeTemplate(content []byte) error {
	_, body, _ := bytes.Cut(content, []byte("\n"))
	if kind := mediaTypeOf(body); kind != "" && kind != typeConfig {
		return nil // scripts and the like; the others are none that a template may hold
	}
	if !slices.ContainsFunc(guarded, func(key string) bool { return bytes.Contains(body, []byte(key)) }) {
		return nil
	}
	body = templateTags.ReplaceAll(body, nil)
	body = templateExpressions.ReplaceAll(body, []byte("x"))
	if err := judgeConfig(body); err != nil {
		return fmt.Errorf("jinja template, read with x for each expression: %w; give %s in a part that is no template",
			err, strings.Join(guarded, ", "))
	}
	return nil
}
