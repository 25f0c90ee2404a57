package cloudinit

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// Types of parts that say something about the configuration of ours.
const (
	typeArchive  = "text/cloud-config-archive"
	typeConfig   = "text/cloud-config"
	typeOctets   = "application/octet-stream"
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
	compressed := bytes.HasPrefix(content, []byte("\x1f\x8b"))
	switch isType := slices.Contains(gzipTypes, mediaType); {
	case isType && !compressed:
		return fmt.Errorf("its type is %s and its content is not gzip: cloud-init would drop all user data", mediaType)
	case isType:
		unpacked, err := gunzip(content)
		if err != nil {
			return err
		}
		if mediaTypeOf(unpacked) == "" {
			return errors.New("gzip: unpacked, it begins with no header that cloud-init knows there, such as #cloud-config or #!; it is unpacked once, and a MIME message in it is not read")
		}
		mediaType, content = "text/plain", unpacked
	case compressed && (strings.HasPrefix(mediaType, "text/") || mediaType == typeOctets):
		return fmt.Errorf("its content is gzip and its type is %s: cloud-init would not unpack it; give it the type %s", mediaType, gzipTypes[0])
	}
	switch mediaType {
	case "text/plain", "text/x-not-multipart", typeOctets, typeScript:
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
	if err := decode(in, &doc); err != nil {
		return fmt.Errorf("#cloud-config: %w", err)
	}
	if in.Decode(new(yaml.Node)) == nil {
		return errors.New("#cloud-config: more than one YAML document; cloud-init would read none of them")
	}
	var errs []error
	if v, ok := doc["write_files"]; ok {
		if err := judgeFiles(v); err != nil {
			errs = append(errs, fmt.Errorf("#cloud-config: %w", err))
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

// decode reads one YAML document, none if there is none. A tag that cloud-init does
// not know has it pass over the whole document, which other readers take.
func decode(in *yaml.Decoder, into any) error {
	var node yaml.Node
	if err := in.Decode(&node); errors.Is(err, io.EOF) {
		return nil
	} else if err != nil {
		return err
	}
	if err := judgeTags(&node); err != nil {
		return err
	}
	return node.Decode(into)
}

// knownTags are those of PyYAML's safe loader, which cloud-init uses.
var knownTags = []string{
	"", "!!null", "!!bool", "!!int", "!!float", "!!binary", "!!timestamp", "!!omap", "!!pairs", "!!set", "!!str", "!!seq", "!!map", "!!merge",
}

func judgeTags(node *yaml.Node) error {
	if tag := node.ShortTag(); node.Kind != yaml.AliasNode && !slices.Contains(knownTags, tag) {
		return fmt.Errorf("yaml: line %d: cloud-init does not know the tag %.40s, and would read nothing of this", node.Line, tag)
	}
	for _, child := range node.Content {
		if err := judgeTags(child); err != nil {
			return err
		}
	}
	return nil
}

// judgeFiles judges the value of write_files. Ours are written first, so that
// another one at the same place would be what is read.
func judgeFiles(value any) error {
	list, isList := value.([]any)
	if !isList {
		return errors.New("write_files is not a list, so cloud-init would merge nothing into it")
	}
	var errs []error
	for i, item := range list {
		fields, _ := item.(map[string]any)
		if text, _ := fields["path"].(string); text != "" && slices.Contains(ourPaths, path.Join("/", text)) {
			errs = append(errs, fmt.Errorf("write_files: entry %d: %s is a file of the agent's, which this would replace", i+1, text))
		}
	}
	return errors.Join(errs...)
}

// judgeArchive judges a list of parts in YAML. An entry that cloud-init cannot
// make a part of ends the reading of all user data.
func judgeArchive(content []byte) error {
	var entries []any
	if err := decode(yaml.NewDecoder(bytes.NewReader(content)), &entries); err != nil {
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
	mediaType, _ = contentType(mediaType, typeConfig) // it becomes a part's header
	return judge(mediaType, []byte(content))
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
		value := op.Value
		if below != "" {
			value = []any{value}
		}
		if op.Path == "" || slices.Contains(guarded, key) && (key != "write_files" || judgeFiles(value) != nil) {
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
