package offering

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/api/resource"

	"bigfleet-providers/provider/internal/machine"
	"bigfleet-providers/shared/jsonkeys"
)

// Load reads an offerings file: a JSON array of objects. It reports every fault
// of the file at once, each with its index and field.
func Load(path string, rules Rules) ([]Offering, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, MaxFileBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > MaxFileBytes {
		return nil, fmt.Errorf("%s: larger than %d bytes, the limit", path, MaxFileBytes)
	}
	list, err := parse(data, rules)
	if err != nil {
		return nil, fmt.Errorf("%s:\n%w", path, err)
	}
	return list, nil
}

func parse(data []byte, rules Rules) ([]Offering, error) {
	if err := jsonkeys.CheckMark(data); err != nil {
		return nil, err
	}
	if !utf8.Valid(data) { // the decoder would replace what is not, silently
		return nil, errors.New("not valid UTF-8")
	}
	var entries []json.RawMessage
	d := json.NewDecoder(bytes.NewReader(data))
	if err := d.Decode(&entries); err != nil {
		if wrong, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
			return nil, fmt.Errorf("holds one JSON %s; want an array of objects: [{\"commercial_type\": …}]", wrong.Value)
		}
		return nil, notJSON(data, err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("something follows the JSON array")
	}
	if len(entries) == 0 {
		return nil, errors.New("no offering in it: a provider needs at least one")
	}
	var (
		list   []Offering
		faults []error
		total  int
	)
	for _, fault := range jsonkeys.Repeated(data, "offerings", false) {
		faults = append(faults, fault)
	}
	for i, entry := range entries {
		r := reader{at: fmt.Sprintf("offerings[%d]", i)}
		list = append(list, r.offering(entry, rules))
		faults = append(faults, r.faults...)
		total += list[i].Count // each is at most MaxSlots, and the file is bounded
	}
	faults = append(faults, ambiguous(list)...)
	faults = append(faults, repeated(list)...)
	if total > MaxSlots {
		faults = append(faults, fmt.Errorf("offerings: the counts add up to %d, the limit is %d", total, MaxSlots))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return list, nil
}

// notJSON says where the file stops being what it should.
func notJSON(data []byte, err error) error {
	if len(bytes.TrimSpace(data)) == 0 {
		return errors.New("empty, and so not a JSON array of objects")
	}
	at := len(data)
	if wrong, ok := errors.AsType[*json.SyntaxError](err); ok {
		at = min(int(wrong.Offset), at) // bytes read, the wrong one included
	}
	before := data[:max(at-1, 0)]
	line := bytes.Count(before, []byte("\n")) + 1
	column := len(before) - bytes.LastIndexByte(before, '\n')
	if errors.Is(err, io.ErrUnexpectedEOF) {
		err = errors.New("it ends too early")
	}
	return fmt.Errorf("not a JSON array of objects: line %d, byte %d: %w", line, column, err)
}

// reader reads one entry and collects its faults.
type reader struct {
	at     string
	fields map[string]json.RawMessage
	faults []error
}

func (r *reader) fault(field, format string, args ...any) {
	r.faults = append(r.faults, fmt.Errorf("%s%s: %s", r.at, field, fmt.Sprintf(format, args...)))
}

// take decodes a field and removes it from those that are left to explain. A
// field that is null counts as absent; one that is absent is not ok.
func (r *reader) take(name string, into any, what string) (present, ok bool) {
	raw := r.fields[name]
	delete(r.fields, name)
	if len(raw) == 0 || bytes.Equal(raw, []byte("null")) {
		return false, false
	}
	if err := json.Unmarshal(raw, into); err != nil {
		r.fault("."+name, "%.100s is not %s", raw, what)
		return true, false
	}
	return true, true
}

func (r *reader) offering(entry json.RawMessage, rules Rules) Offering {
	var o Offering
	if err := json.Unmarshal(entry, &r.fields); err != nil || r.fields == nil {
		r.fault("", "not an object")
		return o
	}
	present, ok := r.take("commercial_type", &o.CommercialType, "a string")
	if !present || ok && o.CommercialType == "" {
		r.fault(".commercial_type", "missing: name the cloud's type, such as DEV1-S")
	}
	r.zone(&o, rules)
	r.capacity(&o, rules)
	r.servers(&o, rules)
	r.count(&o)

	if _, ok := r.take("resources", &o.Resources, "an object of Kubernetes quantities, all strings"); !ok {
		o.Resources = nil // or what was read before the fault
	}
	for _, name := range slices.Sorted(maps.Keys(o.Resources)) {
		r.quantity(fmt.Sprintf(".resources[%q]", name), name, o.Resources[name])
	}
	if _, ok := r.take("labels", &o.Labels, "an object of strings"); ok {
		r.labels(o.Labels)
	}

	r.options(&o.Options, rules)
	r.leftOver("commercial_type, zone, capacity_type, count, resources, labels, image, root_volume, private_network_ids, security_group_id, placement_group_id, public_ip, tags and servers")
	return o
}

// leftOver complains of the fields that nothing took.
func (r *reader) leftOver(known string) {
	for _, name := range slices.Sorted(maps.Keys(r.fields)) {
		r.fault("."+name, "unknown field; known are %s", known)
	}
}

func (r *reader) zone(o *Offering, rules Rules) {
	switch present, ok := r.take("zone", &o.Zone, "a string"); {
	case !present, ok && o.Zone == "":
		r.fault(".zone", "missing: this provider serves %q", rules.Zone)
	case ok && o.Zone != rules.Zone:
		r.fault(".zone", "%q, but this provider serves %q (%s); run one provider a zone", o.Zone, rules.Zone, rules.ZoneFlag)
	}
}

func (r *reader) capacity(o *Offering, rules Rules) {
	sold := Capacity(rules.Substrate)
	o.Capacity = sold
	var word string
	if _, ok := r.take("capacity_type", &word, "a string"); !ok {
		return // absent: what the substrate sells
	}
	switch word {
	case "on_demand":
		o.Capacity = machine.OnDemand
	case "bare_metal":
		o.Capacity = machine.BareMetal
	case "spot", "reserved":
		r.fault(".capacity_type", "%q: %s sells no %s capacity; use %s", word, rules.Vendor, word, capacityWord(sold))
		return
	default:
		r.fault(".capacity_type", "%q is not known; use %s", word, capacityWord(sold))
		return
	}
	if o.Capacity != sold {
		r.fault(".capacity_type", "%q does not fit --substrate %s; use %s", word, rules.Substrate, capacityWord(sold))
	}
}

func capacityWord(c machine.CapacityType) string {
	if c == machine.BareMetal {
		return `"bare_metal"`
	}
	return `"on_demand"`
}

func (r *reader) count(o *Offering) {
	var n int
	switch present, ok := r.take("count", &n, "a whole number"); {
	case present && o.Servers != nil:
		r.fault(".count", "set beside servers, of which there are as many as are named; offer others in an entry of their own")
	case o.Servers != nil:
		o.Count = len(o.Servers)
	case !present:
		r.fault(".count", "missing: say how many machines, at least 1")
	case !ok:
	case n < 1 || n > MaxSlots:
		r.fault(".count", "%d; it must be from 1 to %d", n, MaxSlots)
	default:
		o.Count = n
	}
}

func (r *reader) quantity(field, name, value string) {
	if name == "" || len(name) > MaxLabelBytes {
		r.fault(field, "a resource name has 1 to %d bytes", MaxLabelBytes)
	}
	q, err := resource.ParseQuantity(value)
	switch {
	case err != nil:
		r.fault(field, "%q is not a Kubernetes quantity such as 500m or 2Gi", value)
	case q.Sign() < 0:
		r.fault(field, "%q is negative", value)
	}
}

func (r *reader) labels(labels map[string]string) {
	if len(labels) > MaxLabels {
		r.fault(".labels", "%d labels, the limit is %d", len(labels), MaxLabels)
	}
	for _, key := range slices.Sorted(maps.Keys(labels)) {
		switch value := labels[key]; {
		case key == "":
			r.fault(".labels", "a label has an empty key")
		case len(key) > MaxLabelBytes:
			r.fault(fmt.Sprintf(".labels[%.32q…]", key), "the key has %d bytes, the limit is %d", len(key), MaxLabelBytes)
		case len(value) > MaxLabelBytes:
			r.fault(fmt.Sprintf(".labels[%q]", key), "the value has %d bytes, the limit is %d", len(value), MaxLabelBytes)
		}
	}
}
