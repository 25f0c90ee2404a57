package blob

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// coreTags are what every reader of YAML knows. A blob with another would be
// refused, or passed over, by the program that it is for.
var coreTags = []string{"!!str", "!!int", "!!float", "!!bool", "!!null", "!!seq", "!!map", "!!binary", "!!timestamp", "!!merge"}

// maxDepth bounds what indentation makes of deep nesting.
const maxDepth = 100

// documents reads YAML. It refuses what readers of YAML understand differently:
// a key that stands twice in a mapping, keys that are no scalars, tags of one's own.
func documents(body []byte) ([]*yaml.Node, error) {
	dec := yaml.NewDecoder(bytes.NewReader(body))
	var docs []*yaml.Node
	for {
		var doc yaml.Node
		err := dec.Decode(&doc)
		if errors.Is(err, io.EOF) {
			return docs, nil
		}
		if err != nil {
			return nil, err
		}
		if err := check(&doc, maxDepth); err != nil {
			return nil, err
		}
		if len(doc.Content) == 1 && doc.Content[0].ShortTag() != "!!null" {
			docs = append(docs, doc.Content[0])
		}
	}
}

func check(n *yaml.Node, depth int) error {
	if depth == 0 {
		return fmt.Errorf("line %d: nested more than %d deep", n.Line, maxDepth)
	}
	if n.Kind == yaml.AliasNode {
		return nil // what it stands for was checked
	}
	if n.Kind != yaml.DocumentNode && !slices.Contains(coreTags, n.ShortTag()) {
		return fmt.Errorf("line %d: a tag that is not of YAML itself", n.Line)
	}
	if n.Kind == yaml.MappingNode {
		seen := map[string]bool{}
		for i := 0; i < len(n.Content); i += 2 {
			key := resolve(n.Content[i])
			if key.Kind != yaml.ScalarNode {
				return fmt.Errorf("line %d: a key that is no scalar", key.Line)
			}
			if seen[key.Value] {
				return fmt.Errorf("line %d: the key %q stands twice", key.Line, key.Value)
			}
			seen[key.Value] = true
		}
	}
	for _, child := range n.Content {
		if err := check(child, depth-1); err != nil {
			return err
		}
	}
	return nil
}

// resolve returns what an alias stands for.
func resolve(n *yaml.Node) *yaml.Node {
	for n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// get returns the value of a key in a mapping, nil if there is none.
func get(mapping *yaml.Node, key string) *yaml.Node {
	if mapping.Kind != yaml.MappingNode {
		return nil
	}
	for i := 0; i < len(mapping.Content); i += 2 {
		if resolve(mapping.Content[i]).Value == key {
			return resolve(mapping.Content[i+1])
		}
	}
	return nil
}

// set gives a key of a mapping its value.
func set(mapping *yaml.Node, key string, value *yaml.Node) {
	for i := 0; i < len(mapping.Content); i += 2 {
		if resolve(mapping.Content[i]).Value == key {
			mapping.Content[i+1] = value
			return
		}
	}
	mapping.Content = append(mapping.Content, text(key), value)
}

// text is a string as YAML: quoted, unless it is a key.
func text(s string) *yaml.Node { return &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: s} }

func quoted(s string) *yaml.Node {
	n := text(s)
	n.Style = yaml.DoubleQuotedStyle
	return n
}

// field is a key and its value.
type field struct {
	key   string
	value *yaml.Node
}

func mapping(fields ...field) *yaml.Node {
	n := &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map"}
	for _, f := range fields {
		set(n, f.key, f.value)
	}
	return n
}

func sequence(items ...*yaml.Node) *yaml.Node {
	return &yaml.Node{Kind: yaml.SequenceNode, Tag: "!!seq", Content: items}
}

// render writes documents in the plainest form of YAML: blocks, and strings that
// were quoted or folded in any way in double quotes. Plain scalars stay as they
// are: what "yes" and "0644" mean is the reader's business. That the result means
// the same is looked up.
func render(docs []*yaml.Node) ([]byte, error) {
	var out bytes.Buffer
	enc := yaml.NewEncoder(&out)
	enc.SetIndent(2)
	for _, doc := range docs {
		plain(doc)
		if err := enc.Encode(doc); err != nil {
			return nil, err
		}
	}
	if err := enc.Close(); err != nil {
		return nil, err
	}
	again, err := documents(out.Bytes())
	if err != nil || !slices.EqualFunc(docs, again, same) {
		return nil, errors.New("the blob's YAML cannot be written in a plain form: write it without anchors and special characters")
	}
	return out.Bytes(), nil
}

const quotedStyles = yaml.DoubleQuotedStyle | yaml.SingleQuotedStyle | yaml.LiteralStyle | yaml.FoldedStyle

func plain(n *yaml.Node) {
	n.HeadComment, n.LineComment, n.FootComment = "", "", ""
	inQuotes := n.Style&quotedStyles != 0
	n.Style &= yaml.TaggedStyle
	// The others are plain text that has no place in a block without quotes.
	if inQuotes || n.Kind == yaml.ScalarNode && (strings.Contains(n.Value, "\n") || strings.HasSuffix(n.Value, ":")) {
		n.Style |= yaml.DoubleQuotedStyle
	}
	for _, child := range n.Content {
		plain(child)
	}
}

// same tells whether two nodes mean the same.
func same(a, b *yaml.Node) bool {
	if a.Kind == yaml.AliasNode {
		return b.Kind == yaml.AliasNode && a.Value == b.Value
	}
	quotedA, quotedB := a.Style&quotedStyles != 0, b.Style&quotedStyles != 0
	return a.Kind == b.Kind && a.Value == b.Value && a.Anchor == b.Anchor && a.ShortTag() == b.ShortTag() &&
		quotedA == quotedB && slices.EqualFunc(a.Content, b.Content, same)
}
