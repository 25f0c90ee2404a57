package cloudinit

import (
	"bytes"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"text/template"

	"gopkg.in/yaml.v3"
)

// Where the rendered files land on the machine.
const (
	ConfigPath  = "/etc/bigfleet-agent/config.json" // the agent's config, with the token: 0600
	installPath = "/etc/bigfleet-agent/first-boot"
	keyPath     = "/etc/apt/keyrings/bigfleet-agent.asc"
	sourcePath  = "/etc/apt/sources.list.d/bigfleet-agent.sources"
)

const (
	header = "#cloud-config\n"
	// mergeHow keeps everything that earlier parts say and puts our list
	// entries in front of theirs.
	mergeHow = "dict(no_replace,recurse_list)+list(prepend)+str()"
	// startName sorts behind "runcmd", see the package comment.
	startName = "zz-bigfleet-agent"
)

//go:embed templates
var templates embed.FS

var scripts = template.Must(template.New("").ParseFS(templates, "templates/*"))

// Render returns the user data for one machine. The same parameters give the
// same bytes. Its errors name every fault at once and never the token.
func Render(p Params) ([]byte, error) {
	base, baseErr := parseBase(p.Base)
	if err := errors.Join(p.validate(), baseErr); err != nil {
		return nil, fmt.Errorf("user data: %w", err)
	}
	files, err := p.files()
	if err != nil {
		return nil, fmt.Errorf("user data: %w", err)
	}
	var out []byte
	if base == nil {
		out, err = document{WriteFiles: files, RunCmd: [][]string{{"sh", installPath}}}.render()
	} else {
		out, err = compose(base, document{MergeHow: mergeHow, WriteFiles: files})
	}
	if err != nil {
		return nil, fmt.Errorf("user data: %w", err)
	}
	if p.Limit > 0 && len(out) > p.Limit {
		return nil, fmt.Errorf("user data: %d bytes after encoding, the cloud's limit is %d: shorten the base user data (%d bytes of it) by %d bytes",
			len(out), p.Limit, len(p.Base), len(out)-p.Limit)
	}
	return out, nil
}

// document is the cloud-config that is ours.
type document struct {
	MergeHow   string     `yaml:"merge_how,omitempty"`
	WriteFiles []file     `yaml:"write_files"`
	RunCmd     [][]string `yaml:"runcmd,omitempty"`
}

type file struct {
	Path        string `yaml:"path"`
	Owner       string `yaml:"owner"`
	Permissions string `yaml:"permissions"` // octal in a string: a bare number would be read as decimal
	Content     string `yaml:"content"`
}

func (d document) render() ([]byte, error) {
	var buf bytes.Buffer
	buf.WriteString(header)
	enc := yaml.NewEncoder(&buf)
	enc.SetIndent(2)
	if err := errors.Join(enc.Encode(d), enc.Close()); err != nil {
		return nil, err
	}
	return buf.Bytes(), nil
}

// files lists what is written on the machine, the secret one first.
func (p *Params) files() ([]file, error) {
	config, err := p.agentConfig()
	if err != nil {
		return nil, err
	}
	var script strings.Builder
	if err := scripts.ExecuteTemplate(&script, string(p.Install)+".sh", map[string]any{
		"Packages": p.Packages, "ConfigPath": ConfigPath, "SourcePath": sourcePath,
	}); err != nil {
		return nil, err
	}
	files := []file{
		{ConfigPath, "root:root", "0600", config},
		{installPath, "root:root", "0700", script.String()},
	}
	if p.Install == InstallAPT {
		source := fmt.Sprintf("Types: deb\nURIs: %s\nSuites: %s\nComponents: %s\nSigned-By: %s\n",
			p.APT.URI, p.APT.Suite, p.APT.Component, keyPath)
		files = append(files,
			file{keyPath, "root:root", "0644", p.APT.Key},
			file{sourcePath, "root:root", "0644", source})
	}
	return files, nil
}

// agentConfig is the agent's config file.
func (p *Params) agentConfig() (string, error) {
	var buf strings.Builder
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err := enc.Encode(struct {
		Endpoint  string `json:"endpoint"`
		CAPEM     string `json:"ca_pem"`
		MachineID string `json:"machine_id"`
		Token     string `json:"token"`
	}{p.Endpoint, p.CAPEM, p.MachineID, p.Token})
	return buf.String(), err
}
