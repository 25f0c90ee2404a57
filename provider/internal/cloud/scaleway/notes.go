package scaleway

import (
	"strconv"
	"time"

	"bigfleet-providers/provider/internal/cloud"
)

// NoteTime notes a time, in Unix milliseconds.
func NoteTime(t *cloud.Task, key string, at time.Time) {
	t.Note(key, strconv.FormatInt(at.UnixMilli(), 10))
}

// NotedTime reads a time out of a note; ok is false when there is none.
func NotedTime(t *cloud.Task, key string) (at time.Time, ok bool) {
	n, err := strconv.ParseInt(t.Notes[key], 10, 64)
	if err != nil {
		return time.Time{}, false
	}
	return time.UnixMilli(n), true
}
