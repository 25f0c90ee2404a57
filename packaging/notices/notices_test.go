package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestIdentify(t *testing.T) {
	const bsd = "Redistribution and use in source and binary forms, with or without modification, are permitted."
	for text, want := range map[string][]string{
		"":                                       nil,
		"You may do what you like.":              nil,
		"GNU GENERAL PUBLIC LICENSE Version 3\n": nil,
		"                                 Apache License\n                           Version 2.0, January 2004": {"Apache-2.0"},
		bsd: {"BSD-2-Clause"},
		bsd + "\nNeither the\nname of the author": {"BSD-3-Clause"},
		"Permission is hereby granted, free of charge, to any person.\nThe above copyright notice and this\npermission notice shall stay.\n\nApache License\nVersion 2.0": {"Apache-2.0", "MIT"},
	} {
		if diff := cmp.Diff(want, identify(text)); diff != "" {
			t.Errorf("%q (-want +got):\n%s", text, diff)
		}
	}
}

func TestModuleWithoutALicenceIsRefused(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"none":        {"README": "MIT"},
		"unknown":     {"LICENSE": "All rights reserved."},
		"notice only": {"NOTICE": "Copyright somebody"},
	} {
		dir := t.TempDir()
		for file, text := range files {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		if found, err := licences(dir); err == nil {
			t.Errorf("%s: %+v", name, found)
		}
	}
}

// Every program has known licences only, and each module's text is there.
func TestOurPrograms(t *testing.T) {
	var out bytes.Buffer
	if err := run(t.Context(), []string{"bigfleet-providers/agent/cmd/...", "bigfleet-providers/provider/cmd/..."}, &out); err != nil {
		t.Fatal(err)
	}
	text := out.String()
	for _, want := range []string{"github.com/scaleway/scaleway-sdk-go v", "the Go standard library go1.", "\ngithub.com/spf13/pflag "} {
		if n := strings.Count(text, want); n < 2 {
			t.Errorf("%q is there %d times, want it in the table and above its licence", want, n)
		}
	}
}
