package cloud

import (
	"cmp"
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// OwnerEpoch says which of several processes with one owner tag may change what
// carries the tag: the one with the greatest. Every start of a provider takes a
// greater one and leaves it on its instances. The zero value is that of
// instances made by releases that had none.
type OwnerEpoch struct {
	Number int64
	Holder string // random, so that no two starts have equal epochs; letters and digits
}

// After says that e is greater than other.
func (e OwnerEpoch) After(other OwnerEpoch) bool {
	return cmp.Or(cmp.Compare(e.Number, other.Number), cmp.Compare(e.Holder, other.Holder)) > 0
}

// String renders the epoch as ParseOwnerEpoch reads it; "" for the zero value.
func (e OwnerEpoch) String() string {
	if e == (OwnerEpoch{}) {
		return ""
	}
	return strconv.FormatInt(e.Number, 10) + "-" + e.Holder
}

// ParseOwnerEpoch reads what String made. Anything else, such as a tag that was
// edited by hand, is the zero epoch: it must not depose a provider.
func ParseOwnerEpoch(s string) OwnerEpoch {
	number, holder, ok := strings.Cut(s, "-")
	n, err := strconv.ParseInt(number, 10, 64)
	if !ok || err != nil || n <= 0 || holder == "" || (OwnerEpoch{n, holder}).String() != s {
		return OwnerEpoch{}
	}
	return OwnerEpoch{n, holder}
}

// NotOwnerError refuses to change an instance that a process with a greater
// epoch owns.
type NotOwnerError struct {
	Ref   string
	Epoch OwnerEpoch // the instance's
}

// Error implements error.
func (e *NotOwnerError) Error() string {
	return fmt.Sprintf("%s is owned by another provider process (epoch %s); it is left alone", e.Ref, e.Epoch)
}

// NotOwner returns the epoch that an error of an adapter's refused for.
func NotOwner(err error) (OwnerEpoch, bool) {
	e, ok := errors.AsType[*NotOwnerError](err)
	if !ok {
		return OwnerEpoch{}, false
	}
	return e.Epoch, true
}
