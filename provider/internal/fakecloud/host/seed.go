package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"

	"bigfleet-providers/agent"
)

// unit is the word by which commands in user data are known to start the agent.
const unit = "bigfleet-agent"

// seed is what user data says about the agent.
type seed struct {
	files  []file
	config agent.Config
	// passedBy says what in the user data was not acted on.
	passedBy []string
}

// readSeed reads user data as a guest does at its first boot. With an error no
// agent will run; the files are to be written all the same.
func readSeed(userData []byte) (seed, error) {
	b, err := readUserData(userData)
	s := seed{passedBy: b.ignored}
	if err != nil {
		return s, err
	}
	s.files, err = b.files()
	if err != nil {
		s.passedBy = append(s.passedBy, err.Error())
	}
	raw, ok := s.content(agent.DefaultConfigPath)
	if !ok {
		return s, errors.Join(fmt.Errorf("it writes no %s", agent.DefaultConfigPath), err)
	}
	if !b.starts(unit) {
		return s, errors.New("nothing in it starts " + unit)
	}
	// The words of a JSON error may quote the token.
	if json.Unmarshal(raw, &s.config) != nil {
		return s, fmt.Errorf("%s is not the JSON of an agent's configuration", agent.DefaultConfigPath)
	}
	if err := s.config.Validate(); err != nil {
		return s, fmt.Errorf("%s: %w", agent.DefaultConfigPath, err)
	}
	return s, nil
}

// content is what a file holds when all of them are written.
func (s *seed) content(name string) (content []byte, ok bool) {
	for _, f := range s.files {
		switch {
		case f.path != path.Clean(name):
		case f.append:
			content, ok = append(slices.Clip(content), f.content...), true
		default:
			content, ok = f.content, true
		}
	}
	return content, ok
}
