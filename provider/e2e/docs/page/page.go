// Package page reads the pages of the documentation as tests need them: blocks
// of commands with the marks above them.
package page

import (
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
)

// The kinds of blocks.
const (
	Commands   = "commands"   // to be run
	Background = "background" // to be started and left running
	File       = "file"       // to be written
	Output     = "output"     // what the commands before it print
	Excused    = "excused"    // commands that say what they need
	CI         = "ci"         // commands that .ci/run runs
)

// Block is a fenced block of a page that is marked, or that holds commands.
type Block struct {
	Kind string
	Line int    // of its first line of text, from 1
	Text string // without the indentation of the fence
	// Name is the file's name, or the words that tell that what was started is
	// ready.
	Name string
	// With is what has to be there when it is run, such as "a provider"; "" for
	// nothing.
	With string
}

var (
	fence = regexp.MustCompile("^( *)```([a-z]*)$")
	// unlabelled is how commands begin that somebody forgot to mark as such.
	unlabelled = regexp.MustCompile(`^(\$ |#!/bin/(ba)?sh|(sudo|bin/[a-z]+|capacityctl|scaleway|make|curl|helm|kubectl|tofu|go|git|openssl|systemctl|apt|apt-get|docker) )`)
	mark       = regexp.MustCompile(`^ *<!-- (tested by \.ci/run|tested|output)(?: with ([a-z ]+?))?( in the background)?(?:: (.+))? -->$`)
)

// Read returns the blocks of a page, in order. A block of commands that is
// neither marked nor excused is an error.
func Read(path string) ([]Block, error) {
	content, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	blocks, err := Parse(string(content))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return blocks, nil
}

// Parse is Read of a page's text. It reports every fault at once, by its line.
func Parse(text string) ([]Block, error) {
	var (
		blocks []Block
		errs   []error
	)
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		open := fence.FindStringSubmatch(lines[i])
		if open == nil {
			continue
		}
		var marked []string
		if i > 0 {
			marked = mark.FindStringSubmatch(lines[i-1])
		}
		first := i + 1
		for i++; i < len(lines) && lines[i] != open[1]+"```"; i++ {
			lines[i] = strings.TrimPrefix(lines[i], open[1])
		}
		if i == len(lines) {
			return nil, errors.Join(append(errs, fmt.Errorf("line %d: this block has no end", first))...)
		}
		body := strings.Join(lines[first:i], "\n") + "\n"
		b := Block{Kind: Commands, Line: first + 1, Text: body}
		switch {
		case marked == nil && open[2] != "sh" && (open[2] == "bash" || open[2] == "shell" || open[2] == "console" || open[2] == "" && unlabelled.MatchString(body)):
			errs = append(errs, fmt.Errorf("line %d: commands belong into a block of the language sh:\n%s", first+1, body))
			continue
		case marked == nil && open[2] != "sh":
			continue
		case marked == nil && strings.HasPrefix(body, "# Needs "):
			b.Kind = Excused
		case marked == nil:
			errs = append(errs, fmt.Errorf("line %d: these commands are neither marked as tested, nor does a comment say what they need (# Needs …):\n%s", first+1, body))
			continue
		case marked[1] == "output":
			b.Kind = Output
		case marked[1] != "tested":
			b.Kind = CI
		case marked[3] != "":
			b.Kind, b.With, b.Name = Background, marked[2], marked[4]
		case marked[4] != "":
			b.Kind, b.Name = File, marked[4]
		default:
			b.With = marked[2]
		}
		blocks = append(blocks, b)
	}
	return blocks, errors.Join(errs...)
}
