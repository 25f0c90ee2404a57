package machine

import (
	"strconv"
	"strings"
)

// generationMark separates a slot's name from the generation in the ids of the
// machines that fill it after a failure. Slots end in a number of four digits or
// more, so that none looks like another's successor.
const generationMark = "-r"

// maxGenerationDigits keeps what anybody may write into a tag from being taken
// for a generation that nothing can follow.
const maxGenerationDigits = 9

// IDOf is the id of the machine that fills a slot in a generation. The first
// has the slot's own name.
func IDOf(slot string, generation int) string {
	if generation <= 1 {
		return slot
	}
	return slot + generationMark + strconv.Itoa(generation)
}

// Lineage is the slot and the generation that an id names: IDOf reversed.
func Lineage(id string) (slot string, generation int) {
	i := strings.LastIndex(id, generationMark)
	if i <= 0 || len(id) > i+len(generationMark)+maxGenerationDigits {
		return id, 1
	}
	n, err := strconv.Atoi(id[i+len(generationMark):])
	if err != nil || n < 2 || IDOf(id[:i], n) != id {
		return id, 1
	}
	return id[:i], n
}

// Following is the slot of the machine and the generation that may fill it once
// the machine is gone. A FAILED id never comes back: the next generation
// follows it. Any other may be offered again.
func (r Record) Following() (slot string, generation int) {
	slot, generation = Lineage(r.ID)
	if r.State == Failed {
		generation++
	}
	return slot, generation
}
