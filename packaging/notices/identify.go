package main

import (
	"slices"
	"strings"
)

// signs are words by which a licence's text is told from the others. One that
// is found hides the ones that it contains.
var signs = []struct {
	name  string // SPDX
	all   []string
	hides string
}{
	{name: "Apache-2.0", all: []string{"Apache License", "Version 2.0"}},
	{name: "MPL-2.0", all: []string{"Mozilla Public License", "2.0"}},
	{name: "BSD-3-Clause", all: []string{"Redistribution and use in source and binary forms", "Neither the name"}, hides: "BSD-2-Clause"},
	{name: "BSD-2-Clause", all: []string{"Redistribution and use in source and binary forms"}},
	{name: "ISC", all: []string{"Permission to use, copy, modify, and/or distribute this software for any"}},
	{name: "ISC", all: []string{"Permission to use, copy, modify, and distribute this software for any"}},
	{name: "MIT", all: []string{"Permission is hereby granted, free of charge", "The above copyright notice and this permission notice"}},
}

// identify returns the SPDX identifiers of the licences in a text. There is none
// for what is not known, and for a licence under which a program may not be
// handed out the way these are: without an offer of its source.
func identify(text string) []string {
	text = strings.Join(strings.Fields(text), " ")
	if strings.Contains(text, "GNU GENERAL PUBLIC LICENSE") || strings.Contains(text, "GNU AFFERO") {
		return nil
	}
	var names []string
	hidden := ""
next:
	for _, s := range signs {
		for _, words := range s.all {
			if !strings.Contains(text, words) {
				continue next
			}
		}
		if s.name == hidden || slices.Contains(names, s.name) {
			continue
		}
		names, hidden = append(names, s.name), s.hides
	}
	return names
}
