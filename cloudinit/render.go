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

	"bigfleet-providers/shared/endpoint"
)

// Where the rendered files land on the machine.
const (
	ConfigPath  = "/etc/bigfleet-agent/config.json" // the agent's config, with the token: 0600
	installPath = "/etc/bigfleet-agent/first-boot"
	keyPath     = "/etc/apt/keyrings/bigfleet-agent.asc"
	sourcePath  = "/etc/apt/sources.list.d/bigfleet-agent.sources"
	// The unit takes an installation up again that a reboot has cut off. The
	// second file has systemd start it at each boot, and is gone afterwards.
	resumePath  = "/etc/systemd/system/bigfleet-agent-install.service"
	pendingPath = "/etc/systemd/system/multi-user.target.d/bigfleet-agent-install.conf"
)

// ourPaths are all of them, whatever is installed how.
var ourPaths = []string{ConfigPath, installPath, keyPath, sourcePath, resumePath, pendingPath}

const (
	header = "#cloud-config\n"
	// mergeHow keeps everything that earlier parts say and puts our list
	// entries in front of theirs.
	mergeHow = "dict(no_replace,recurse_list)+list(prepend)+str()"
	// startName sorts behind "runcmd", see the package comment.
	startName = "zz-bigfleet-agent"
)

// Templates of the files at resumePath and pendingPath.
const (
	resumeUnit   = "resume.service"
	resumeWanted = "resume.conf"
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
	if len(base) == 0 {
		out, err = document{WriteFiles: files, RunCmd: [][]string{{"sh", "-c", start(files)}}}.render()
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

// files lists what is written on the machine, in this order, the secret one first.
func (p *Params) files() ([]file, error) {
	config, err := p.agentConfig()
	if err != nil {
		return nil, err
	}
	text := map[string]string{}
	for _, name := range []string{string(p.Install) + ".sh", resumeUnit, resumeWanted} {
		var buf strings.Builder
		if err := scripts.ExecuteTemplate(&buf, name, map[string]any{
			"Packages": p.Packages, "APT": p.APT, "ConfigPath": ConfigPath, "SourcePath": sourcePath,
			"InstallPath": installPath, "ResumePath": resumePath, "PendingPath": pendingPath,
		}); err != nil {
			return nil, err
		}
		text[name] = buf.String()
	}
	files := []file{
		{ConfigPath, "root:root", "0600", config},
		{installPath, "root:root", "0700", text[string(p.Install)+".sh"]},
	}
	if p.Install == InstallAPT {
		source := fmt.Sprintf("Types: deb\nURIs: %s\nSuites: %s\nComponents: %s\nSigned-By: %s\n",
			p.APT.URI, p.APT.Suite, p.APT.Component, keyPath)
		files = append(files,
			file{keyPath, "root:root", "0644", p.APT.Key},
			file{sourcePath, "root:root", "0644", source})
	}
	// Last the one that starts things: by then the others are there.
	return append(files,
		file{resumePath, "root:root", "0644", text[resumeUnit]},
		file{pendingPath, "root:root", "0644", text[resumeWanted]}), nil
}

// start is what runs once, at the end of the first boot. cloud-init takes
// write_files for done before it begins with it, so that a boot that was cut off
// in there has left files out: they are written now.
func start(files []file) string {
	var paths []string
	for _, f := range files {
		paths = append(paths, f.Path)
	}
	return "for file in " + strings.Join(paths, " ") + "; do\n" +
		"  [ -s \"$file\" ] || { cloud-init single --name write-files --frequency always; break; }\n" +
		"done\nexec sh " + installPath + "\n"
}

// agentConfig is the agent's config file.
func (p *Params) agentConfig() (string, error) {
	// In the one form that the agent and the first boot's script read alike.
	u, err := endpoint.URL(p.Endpoint, "https")
	if err != nil {
		return "", fmt.Errorf("the endpoint: %w", err)
	}
	var buf strings.Builder
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	enc.SetIndent("", "  ")
	err = enc.Encode(struct {
		Endpoint  string `json:"endpoint"`
		CAPEM     string `json:"ca_pem"`
		MachineID string `json:"machine_id"`
		Token     string `json:"token"`
	}{u.String(), p.CAPEM, p.MachineID, p.Token})
	return buf.String(), err
}
