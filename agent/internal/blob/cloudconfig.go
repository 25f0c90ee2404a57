package blob

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"
)

// module is one of cloud-init's. They are in the order of a boot.
type module int

const (
	usersGroups module = iota
	writeFiles
	aptConfigure
	packageInstall
	writeFilesDeferred
	runCmd
)

var moduleNames = map[module]string{
	usersGroups: "users_groups", writeFiles: "write_files", aptConfigure: "apt_configure",
	packageInstall: "package_update_upgrade_install", writeFilesDeferred: "write_files_deferred", runCmd: "runcmd",
}

// setting is a key of a #cloud-config that means something on a running system.
type setting struct {
	module module
	want   string // what check wants
	check  func(*yaml.Node) bool
}

var settings = map[string]setting{
	"users":           {usersGroups, "a value", func(n *yaml.Node) bool { return n.ShortTag() != "!!null" }},
	"groups":          {usersGroups, "a value", func(n *yaml.Node) bool { return n.ShortTag() != "!!null" }},
	"write_files":     {writeFiles, "a list of mappings", listOf(isMapping)},
	"apt":             {aptConfigure, "a mapping", isMapping},
	"packages":        {packageInstall, "a list", listOf(func(n *yaml.Node) bool { return n.ShortTag() != "!!null" })},
	"package_update":  {packageInstall, "true or false", isScalar},
	"package_upgrade": {packageInstall, "true or false", isScalar},
	"runcmd":          {runCmd, "a list of commands", listOf(func(n *yaml.Node) bool { return isScalar(n) || listOf(isScalar)(n) })},
}

func isMapping(n *yaml.Node) bool { return n.Kind == yaml.MappingNode }
func isScalar(n *yaml.Node) bool  { return n.Kind == yaml.ScalarNode && n.ShortTag() != "!!null" }

func listOf(item func(*yaml.Node) bool) func(*yaml.Node) bool {
	return func(n *yaml.Node) bool {
		return n.Kind == yaml.SequenceNode && !slices.ContainsFunc(n.Content, func(n *yaml.Node) bool { return !item(resolve(n)) })
	}
}

// CloudConfig reads a #cloud-config. It returns cloud-init's modules that apply
// it, in the order of a boot, and the configuration in a form that cloud-init
// cannot read differently. A key that would not be applied is an error: cloud-init
// passes it over without a word.
func CloudConfig(body []byte) (modules []string, config []byte, err error) {
	body, err = Text(body)
	if err != nil {
		return nil, nil, err
	}
	first, _, _ := bytes.Cut(body, []byte("\n"))
	if word, _, _ := strings.Cut(strings.TrimSpace(string(first)), " "); word != "#cloud-config" {
		return nil, nil, errors.New("the blob's first line is not #cloud-config; this hook applies no other kind of user data")
	}
	docs, err := documents(body)
	if err != nil {
		return nil, nil, fmt.Errorf("the blob's #cloud-config: %w", err)
	}
	if len(docs) > 1 {
		return nil, nil, errors.New("the blob's #cloud-config has more than one YAML document, of which cloud-init reads none")
	}
	if len(docs) == 0 || docs[0].Kind != yaml.MappingNode || len(docs[0].Content) == 0 {
		return nil, nil, errors.New("the blob's #cloud-config is not a mapping with keys")
	}
	needed := map[module]bool{}
	var faults []error
	for i := 0; i < len(docs[0].Content); i += 2 {
		key, value := resolve(docs[0].Content[i]).Value, resolve(docs[0].Content[i+1])
		switch s, known := settings[key]; {
		case !known:
			faults = append(faults, fmt.Errorf("the blob's #cloud-config has a key that this hook does not apply: %s", key))
		case !s.check(value):
			faults = append(faults, fmt.Errorf("the blob's #cloud-config: %s: want %s", key, s.want))
		default:
			needed[s.module] = true
			if s.module == writeFiles && slices.ContainsFunc(value.Content, deferred) {
				needed[writeFilesDeferred] = true
			}
		}
	}
	if err := errors.Join(faults...); err != nil {
		return nil, nil, err
	}
	for _, m := range slices.SortedFunc(maps.Keys(needed), cmp.Compare[module]) {
		modules = append(modules, moduleNames[m])
	}
	if config, err = render(docs); err != nil {
		return nil, nil, err
	}
	return modules, append([]byte("#cloud-config\n"), config...), nil
}

// deferred tells whether a file is one that cloud-init writes after it installed
// the packages, by another module.
func deferred(file *yaml.Node) bool {
	n := get(resolve(file), "defer")
	return n != nil && !slices.Contains([]string{"", "0", "false", "no", "off", "n", "null", "~"}, strings.ToLower(n.Value))
}
