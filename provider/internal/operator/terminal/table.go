package terminal

import (
	"strings"
	"unicode/utf8"
)

// Cell is one field of a table. Its text may hold anything: what would command
// the terminal is replaced.
type Cell struct {
	Text  string
	Style Style
}

// Table is a header and rows of as many cells. Each column is as wide as its
// widest cell.
type Table struct {
	Header []string
	Rows   [][]Cell
}

// gap is between two columns.
const gap = "  "

// Add adds a row of plain cells.
func (t *Table) Add(texts ...string) {
	row := make([]Cell, len(texts))
	for i, text := range texts {
		row[i].Text = text
	}
	t.Rows = append(t.Rows, row)
}

// Lines lays the table out.
func (t *Table) Lines(o *Output) []string {
	header := make([]Cell, len(t.Header))
	for i, text := range t.Header {
		header[i] = Cell{text, Bold}
	}
	rows := append([][]Cell{header}, t.Rows...)
	widths := make([]int, len(t.Header))
	for _, row := range rows {
		for i, c := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(c.Text))
		}
	}
	lines := make([]string, len(rows))
	for n, row := range rows {
		var b strings.Builder
		for i, c := range row {
			b.WriteString(o.Paint(c.Style, Printable(c.Text)))
			if i < len(row)-1 {
				b.WriteString(strings.Repeat(" ", widths[i]-utf8.RuneCountInString(c.Text)) + gap)
			}
		}
		lines[n] = b.String()
	}
	return lines
}

// Write writes the table.
func (t *Table) Write(o *Output) error {
	_, err := o.Write([]byte(strings.Join(t.Lines(o), "\n") + "\n"))
	return err
}
