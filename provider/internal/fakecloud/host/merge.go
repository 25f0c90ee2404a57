package host

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
)

// defaultMerge is how cloud-init merges a part that declares nothing
// (cloudinit/handlers/cloud_config.py).
const defaultMerge = "dict(replace)+list()+str()"

// merger merges one cloud-config part onto those before it, as the part
// declares. It follows cloudinit/mergers, odd corners included: a part without
// a rule for a type leaves earlier values of the type as they are.
type merger struct {
	dict, list, str options // nil: not declared
}

type options []string

func (o options) has(names ...string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return slices.Contains(o, n) })
}

// first returns the first of names that is set, else fallback.
func (o options) first(fallback string, names ...string) string {
	for _, n := range names {
		if o.has(n) {
			return n
		}
	}
	return fallback
}

// newMerger reads the rule of a part: its merge_how or merge_type, which is
// taken out of config, then its header.
func newMerger(config map[string]any, header string) (merger, error) {
	declared, ok := config["merge_how"]
	if !ok || declared == nil {
		declared = config["merge_type"]
	}
	delete(config, "merge_how")
	delete(config, "merge_type")

	var m merger
	switch declared := declared.(type) {
	case nil:
	case string:
		if err := m.parse(declared); err != nil {
			return merger{}, err
		}
	case []any:
		for _, entry := range declared {
			rule, ok := entry.(map[string]any)
			if !ok {
				return merger{}, fmt.Errorf("merge_how: %v is not a mapping of name and settings", entry)
			}
			var opts options
			if settings, ok := rule["settings"].([]any); ok {
				for _, s := range settings {
					opts = append(opts, fmt.Sprint(s))
				}
			}
			if err := m.declare(fmt.Sprint(rule["name"]), opts); err != nil {
				return merger{}, err
			}
		}
	default:
		return merger{}, fmt.Errorf("merge_how: a %T, want a string or a list", declared)
	}
	if err := m.parse(header); err != nil {
		return merger{}, err
	}
	if m.dict == nil && m.list == nil && m.str == nil {
		if err := m.parse(defaultMerge); err != nil {
			return merger{}, err
		}
	}
	return m, nil
}

var mergeRule = regexp.MustCompile(`^([a-z_][a-z0-9_]*)\((.*?)\)$`)

func (m *merger) parse(text string) error {
	for rule := range strings.SplitSeq(text, "+") {
		rule = strings.ReplaceAll(strings.ToLower(strings.TrimSpace(rule)), "-", "_")
		if rule == "" {
			continue
		}
		match := mergeRule.FindStringSubmatch(rule)
		if match == nil {
			return fmt.Errorf("merge rule %q is not of the form name(options)", rule)
		}
		var opts options
		for o := range strings.SplitSeq(match[2], ",") {
			if o = strings.TrimSpace(o); o != "" {
				opts = append(opts, o)
			}
		}
		if err := m.declare(match[1], opts); err != nil {
			return err
		}
	}
	return nil
}

// declare adds a rule; an earlier one for the same type wins.
func (m *merger) declare(name string, opts options) error {
	slot, ok := map[string]*options{"dict": &m.dict, "list": &m.list, "str": &m.str}[name]
	if !ok {
		return fmt.Errorf("merge rule %q is unknown", name)
	}
	if *slot == nil {
		*slot = append(options{}, opts...)
	}
	return nil
}

// merge returns old with part merged onto it. old is not changed. It stays when
// the two cannot be joined, such as a string appended to a list, where cloud-init
// raises an exception.
func (m merger) merge(old, part any) any {
	switch old := old.(type) {
	case map[string]any:
		if m.dict != nil {
			return m.mergeDict(old, part)
		}
	case []any:
		if m.list != nil {
			return m.mergeList(old, part)
		}
	case string:
		if m.str == nil {
			return old
		}
		if !m.str.has("append") {
			return part
		}
		if s, ok := part.(string); ok {
			return old + s
		}
	}
	return old
}

func (m merger) mergeDict(old map[string]any, part any) any {
	with, ok := part.(map[string]any)
	if !ok {
		return old
	}
	replace := m.dict.first("no_replace", "replace", "no_replace") == "replace"
	out := maps.Clone(old)
	for k, v := range with {
		had, exists := out[k]
		switch {
		case !exists:
			out[k] = v
		case v == nil && m.dict.has("allow_delete"):
			delete(out, k)
		case replace:
			out[k] = v
		case m.recurses(m.dict, v, true):
			out[k] = m.merge(had, v)
		}
	}
	return out
}

func (m merger) mergeList(old []any, part any) any {
	mode := m.list.first("replace", "append", "prepend", "replace", "no_replace")
	with, ok := part.([]any)
	if !ok {
		if mode == "replace" {
			return part
		}
		return old
	}
	switch mode {
	case "append":
		return slices.Concat(old, with)
	case "prepend":
		return slices.Concat(with, old)
	}
	// Entry by entry; what the longer of the two has more of comes from old.
	out := slices.Clone(old)
	for i := range min(len(out), len(with)) {
		switch {
		case mode == "no_replace":
		case m.recurses(m.list, with[i], m.list.has("recurse_dict")):
			out[i] = m.merge(out[i], with[i])
		default:
			out[i] = with[i]
		}
	}
	return out
}

// recurses tells whether a value of v's type is merged into and not replaced.
func (m merger) recurses(o options, v any, dicts bool) bool {
	switch v.(type) {
	case map[string]any:
		return dicts
	case []any:
		return o.has("recurse_list", "recurse_array")
	case string:
		return o.has("recurse_str")
	}
	return false
}
