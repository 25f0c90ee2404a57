// Generate writes the files of package monitoring into the repository, whose
// root is the working directory.
package main

import (
	"errors"
	"fmt"
	"os"

	"bigfleet-providers/provider/internal/monitoring"
)

// readable is the mode of the repository's files.
const readable = 0o644

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "generate: %v\n", err)
		os.Exit(1)
	}
}

func run() error {
	page, err := os.ReadFile(monitoring.DocsFile)
	if err != nil {
		return fmt.Errorf("to be run in the root of the repository: %w", err)
	}
	var errs []error
	for _, cloud := range monitoring.Clouds() {
		files, err := monitoring.Files(cloud)
		errs = append(errs, err)
		for path, content := range files {
			errs = append(errs, os.WriteFile(path, content, readable))
		}
	}
	page, err = monitoring.Docs(monitoring.Clouds()[0], page)
	if err != nil {
		return errors.Join(append(errs, err)...)
	}
	return errors.Join(append(errs, os.WriteFile(monitoring.DocsFile, page, readable))...)
}
