package main

import (
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// row is what the table shows of one machine.
type row struct {
	machine string
	state   string
	host    string
	cluster string
	elapsed time.Duration // in the transition under way, or what the last one took
	event   string
}

// columns of the table, in order. The event comes last since it is the one to
// lose its end on a narrow terminal. The widths are what a full cell takes, so
// that the table stands still while it fills.
var columns = []struct {
	title string
	width int
	cell  func(row) string
}{
	{"MACHINE", 0, func(r row) string { return r.machine }},
	{"STATE", len("SPECULATIVE"), func(r row) string { return r.state }},
	{"HOST", len("01234567"), func(r row) string { return orDash(r.host) }},
	{"CLUSTER", 0, func(r row) string { return orDash(r.cluster) }},
	{"ELAPSED", 0, func(r row) string { return seconds(r.elapsed) }},
	{"LAST EVENT", 0, func(r row) string { return r.event }},
}

// stateColumn is the one that style colours.
const stateColumn = 1

// columnGap is the space between two columns.
const columnGap = 2

// table renders the rows below a header as lines of at most width characters.
func table(rows []row, width int, s style) []string {
	widths := make([]int, len(columns))
	grid := make([][]string, 0, len(rows)+1)
	header := make([]string, len(columns))
	for i, c := range columns {
		header[i], widths[i] = c.title, c.width
	}
	grid = append(grid, header)
	for _, r := range rows {
		cells := make([]string, len(columns))
		for i, c := range columns {
			cells[i] = c.cell(r)
		}
		grid = append(grid, cells)
	}
	for _, cells := range grid {
		for i, c := range cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(c))
		}
	}

	lines := make([]string, len(grid))
	for n, cells := range grid {
		var line strings.Builder
		room := width
		for i, c := range cells {
			c = cut(c, room)
			pad := 0
			if i < len(cells)-1 {
				pad = min(widths[i]+columnGap, room) - utf8.RuneCountInString(c)
			}
			room -= utf8.RuneCountInString(c) + pad
			switch {
			case n == 0:
				c = s.faint(c)
			case i == stateColumn:
				c = s.state(rows[n-1].state, c)
			}
			line.WriteString(c + strings.Repeat(" ", pad))
		}
		lines[n] = strings.TrimRight(line.String(), " ")
	}
	return lines
}

// cut shortens text to at most n characters and marks the cut.
func cut(text string, n int) string {
	if utf8.RuneCountInString(text) <= n {
		return text
	}
	if n <= 0 {
		return ""
	}
	return string([]rune(text)[:n-1]) + "…"
}

// abbreviate shortens an id for the table as git does: to its beginning.
func abbreviate(id string) string { return id[:min(len(id), 8)] }

func orDash(text string) string {
	if text == "" {
		return "-"
	}
	return text
}

// number is so many of something.
func number(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return fmt.Sprintf("%d %s", n, thing)
}

func seconds(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return fmt.Sprintf("%.1fs", d.Seconds())
}

// style adds colour, or nothing.
type style bool

const (
	ansiReset  = "\x1b[0m"
	ansiBold   = "\x1b[1m"
	ansiFaint  = "\x1b[2m"
	ansiRed    = "\x1b[31m"
	ansiGreen  = "\x1b[32m"
	ansiYellow = "\x1b[33m"
)

func (s style) paint(code, text string) string {
	if !s || text == "" {
		return text
	}
	return code + text + ansiReset
}

func (s style) bold(text string) string  { return s.paint(ansiBold, text) }
func (s style) faint(text string) string { return s.paint(ansiFaint, text) }
func (s style) good(text string) string  { return s.paint(ansiGreen, text) }
func (s style) bad(text string) string   { return s.paint(ansiRed, text) }

// state paints text by what the state means: at rest, under way, or lost.
func (s style) state(state, text string) string {
	switch state {
	case "IDLE", "CONFIGURED":
		return s.good(text)
	case "FAILED":
		return s.bad(text)
	case "SPECULATIVE":
		return s.faint(text)
	default:
		return s.paint(ansiYellow, text)
	}
}
