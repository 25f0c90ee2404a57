package operator

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

// selection says which machines are shown: those that every given filter lets
// through.
type selection struct {
	states, types, clusters, capacities, zones, labels []string

	wanted   []pb.MachineState // of states, once judged
	capacity []pb.CapacityType // of capacities, once judged
	terms    []labelTerm       // of labels, once judged
}

// labelTerm is one --label.
type labelTerm struct {
	key, value string
	anyValue   bool // KEY: it is there
	not        bool // KEY!=VALUE
}

func (s *selection) declare(p *program, c *cobra.Command) {
	f := c.Flags()
	f.StringSliceVar(&s.states, "state", nil, "only machines in this `state`; like the other filters it can be repeated, or have several values with commas")
	f.StringSliceVar(&s.types, "type", nil, "only machines of this instance `type`")
	f.StringSliceVar(&s.clusters, "cluster", nil, "only machines bound to this `cluster`")
	f.StringSliceVar(&s.capacities, "capacity", nil, "only machines of this `capacity` type: "+strings.ToLower(either(capacityNames())))
	f.StringSliceVar(&s.zones, "zone", nil, "only machines in this `zone`")
	f.StringSliceVarP(&s.labels, "label", "l", nil, "only machines with this label: `KEY=VALUE`, KEY!=VALUE or KEY; of several, all count")
	completes(c, "state", stateNames())
	completes(c, "capacity", capacityNames())
	p.completesWith(c, "type", (*pb.Machine).GetInstanceType)
	p.completesWith(c, "cluster", (*pb.Machine).GetCluster)
	p.completesWith(c, "zone", (*pb.Machine).GetZone)
}

// check judges the filters and reports every fault.
func (s *selection) check() error {
	var errs []error
	var err error
	s.wanted, err = parseStates(s.states)
	errs = append(errs, err)
	for _, name := range s.capacities {
		v, ok := pb.CapacityType_value[capacityPrefix+strings.ToUpper(strings.ReplaceAll(name, "-", "_"))]
		if !ok || v == 0 {
			errs = append(errs, fmt.Errorf("--capacity: %q is unknown, want %s", name, either(capacityNames())))
		}
		s.capacity = append(s.capacity, pb.CapacityType(v))
	}
	for _, text := range s.labels {
		t := labelTerm{}
		var found bool
		if t.key, t.value, t.not = strings.Cut(text, "!="); !t.not {
			t.key, t.value, found = strings.Cut(text, "=")
			t.anyValue = !found
		}
		if t.key == "" {
			errs = append(errs, fmt.Errorf("--label: %q has no key, want KEY=VALUE, KEY!=VALUE or KEY", text))
		}
		s.terms = append(s.terms, t)
	}
	return errors.Join(errs...)
}

// filters says whether any filter was given.
func (s *selection) filters() bool {
	return len(s.states)+len(s.types)+len(s.clusters)+len(s.capacities)+len(s.zones)+len(s.labels) > 0
}

// match says whether the machine is selected, its state included: a delta of the
// list is not asked for by state, so that a machine that leaves one is seen.
func (s *selection) match(m *pb.Machine) bool {
	return among(s.wanted, m.GetState()) && among(s.types, m.GetInstanceType()) && among(s.clusters, m.GetCluster()) &&
		among(s.capacity, m.GetCapacityType()) && among(s.zones, m.GetZone()) &&
		!slices.ContainsFunc(s.terms, func(t labelTerm) bool { return !t.match(m.GetLabels()) })
}

// among says whether the value is one of those, or none were asked for.
func among[T comparable](values []T, v T) bool { return len(values) == 0 || slices.Contains(values, v) }

func (t labelTerm) match(labels map[string]string) bool {
	value, ok := labels[t.key]
	switch {
	case t.anyValue:
		return ok
	case t.not:
		return value != t.value || !ok
	default:
		return ok && value == t.value
	}
}
