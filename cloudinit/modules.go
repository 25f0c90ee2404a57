package cloudinit

import (
	"errors"
	"fmt"
	"strings"
)

// moduleLists are the keys under which a cloud-config replaces what cloud-init
// runs in each stage.
var moduleLists = []string{"cloud_init_modules", "cloud_config_modules", "cloud_final_modules"}

// What ours needs, and where: write-files early, scripts-user at the end.
const (
	moduleFiles   = "write_files"
	moduleScripts = "scripts_user"
)

// perInstance is how often they have to run: as cloud-init does by default.
const perInstance = "once-per-instance"

// judgeModules judges one list of modules of the operator's.
func judgeModules(key string, value any) error {
	list, ok := value.([]any)
	if !ok {
		return errors.New("want a list; cloud-init would run no module of this stage")
	}
	var errs []error
	found := map[string]bool{}
	for i, item := range list {
		name, often, err := readModule(item)
		if err != nil {
			errs = append(errs, fmt.Errorf("entry %d: %w", i+1, err))
			continue
		}
		found[name] = true
		if name != moduleFiles && name != moduleScripts {
			continue
		}
		if often != "" && often != perInstance {
			errs = append(errs, fmt.Errorf("entry %d: %s with the frequency %q; the agent's files are written and its first boot is run %s", i+1, name, often, perInstance))
		}
		if name == moduleScripts && key != "cloud_final_modules" {
			errs = append(errs, fmt.Errorf("entry %d: %s belongs in cloud_final_modules, where the agent's files are there", i+1, name))
		}
	}
	if key == "cloud_init_modules" && !found[moduleFiles] {
		errs = append(errs, errors.New("lacks write-files, which writes the agent's configuration"))
	}
	if key == "cloud_final_modules" && !found[moduleScripts] {
		errs = append(errs, errors.New("lacks scripts-user, which starts the agent"))
	}
	return errors.Join(errs...)
}

// readModule reads an entry as cloud-init does: a name, a list of name and
// frequency, or a mapping (cloudinit/config/modules.py). Any other ends the
// stage there.
func readModule(item any) (name, often string, err error) {
	var words []any
	switch item := item.(type) {
	case nil:
		return "", "", nil
	case string:
		words = []any{item}
	case []any:
		words = item
	case map[string]any:
		words = []any{item["name"]}
		if v, ok := item["frequency"]; ok {
			words = append(words, v)
		}
	default:
		return "", "", fmt.Errorf("%v: want a module's name", item)
	}
	texts := []*string{&name, &often}
	for i, word := range words[:min(len(words), len(texts))] {
		text, ok := word.(string)
		if !ok {
			return "", "", fmt.Errorf("%v: want a module's name, and its frequency as text", item)
		}
		*texts[i] = strings.TrimSpace(text)
	}
	name = strings.ReplaceAll(name, "-", "_")
	if n := len(name) - len(".py"); n > 0 && strings.EqualFold(name[n:], ".py") {
		name = name[:n]
	}
	return strings.TrimPrefix(name, "cc_"), often, nil
}
