package operator

import (
	"reflect"
	"testing"

	"bigfleet-providers/provider/internal/machine"
)

// TestRecordIsWhole fails when a field is added to the records: whether it may
// be shown has to be decided, and not to be forgotten.
func TestRecordIsWhole(t *testing.T) {
	renamed := map[string]string{"Op": "Operation", "Sealed": "Blob"}
	for _, pair := range []struct{ stored, shown reflect.Type }{
		{reflect.TypeFor[machine.Record](), reflect.TypeFor[record]()},
		{reflect.TypeFor[machine.Offer](), reflect.TypeFor[offer]()},
		{reflect.TypeFor[machine.Mark](), reflect.TypeFor[mark]()},
		{reflect.TypeFor[machine.Operation](), reflect.TypeFor[operation]()},
		{reflect.TypeFor[machine.Leftover](), reflect.TypeFor[leftover]()},
		{reflect.TypeFor[machine.HostLock](), reflect.TypeFor[hostLock]()},
	} {
		for f := range pair.stored.Fields() {
			name := f.Name
			if to, ok := renamed[name]; ok {
				name = to
			}
			if _, ok := pair.shown.FieldByName(name); !ok {
				t.Errorf("%s.%s is not shown", pair.stored, name)
			}
		}
	}
	if f, _ := reflect.TypeFor[operation]().FieldByName("Blob"); f.Type.Kind() != reflect.Int {
		t.Error("of a blob more than the size is shown")
	}
}
