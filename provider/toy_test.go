package provider

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"bigfleet-providers/provider/internal/cloud"
	"bigfleet-providers/provider/internal/delivery"
	"bigfleet-providers/provider/internal/machine"
	"bigfleet-providers/provider/internal/offering"
	"bigfleet-providers/shared/command"
)

// toyVendor is a cloud in a map that reaches its hosts by itself and has no fake: the
// least that a second vendor has to bring.
func toyVendor() Vendor {
	return Vendor{
		Name: "toy", Title: "Toyland", Delivers: true,
		Help:     Help{Owner: Owner{Zone: "--town"}, Mix: "half SMALL and half LARGE"},
		Settings: func() Settings { return &toy{instances: map[string]cloud.Instance{}} },
	}
}

// toy is all of it: the settings, the cloud and the way to the hosts.
type toy struct {
	town, token string

	mu        sync.Mutex // guards what follows
	instances map[string]cloud.Instance
	delivered []command.Command
}

func (y *toy) Flags() Flags {
	scope, account := NewFlagSet(), NewFlagSet()
	scope.StringVar(&y.town, "town", "town", "the `town` that this process serves")
	account.StringVar(&y.token, "token", "", "the town's `token`")
	return Flags{Scope: scope, Account: account, Environment: []Variable{{"token", "TOY_TOKEN", &y.token}}}
}

func (y *toy) Complete(*Config) {}

func (y *toy) Validate(c *Config) error {
	if y.token == "" && !c.Unread("token") {
		return errors.New("--token: missing; set TOY_TOKEN")
	}
	return nil
}

func (y *toy) Scope(*Config) Scope {
	return Scope{Zone: y.town, Offerings: offering.Rules{Substrate: offering.Instances, Zone: y.town}}
}

func (y *toy) Builtin(n int) []offering.Offering {
	return []offering.Offering{
		{CommercialType: "SMALL", Zone: y.town, Capacity: machine.OnDemand, Count: (n + 1) / 2},
		{CommercialType: "LARGE", Zone: y.town, Capacity: machine.OnDemand, Count: n / 2},
	}
}

func (y *toy) LogAccount(log *slog.Logger) { log.Info("Toyland account") }

func (y *toy) Open(context.Context, *Config, Opening) (*Backend, error) {
	return &Backend{Cloud: y, Deleter: y, Catalog: y, Prober: y, Delivery: y}, nil
}

func (y *toy) change(ref string, change func(*cloud.Instance)) error {
	y.mu.Lock()
	defer y.mu.Unlock()
	i, ok := y.instances[ref]
	if !ok {
		return fmt.Errorf("%w: %s", cloud.ErrNotFound, ref)
	}
	change(&i)
	y.instances[ref] = i
	return nil
}

func (y *toy) Create() []cloud.Step {
	return []cloud.Step{{Name: "order", Run: func(_ context.Context, t *cloud.Task) error {
		data, err := t.Spec.UserData()
		if err != nil || string(data) != "#cloud-config\n" {
			return fmt.Errorf("user data %q: %w", data, err)
		}
		y.mu.Lock()
		defer y.mu.Unlock()
		t.Ref = y.town + "/" + t.Spec.OperationID
		y.instances[t.Ref] = cloud.Instance{
			Ref: t.Ref, MachineID: t.Spec.MachineID, OperationID: t.Spec.OperationID, Type: t.Spec.Type, Zone: y.town, Power: cloud.PowerRunning,
		}
		return nil
	}}}
}

func (y *toy) Start() []cloud.Step { return nil }

func (y *toy) Discard() []cloud.Step {
	return []cloud.Step{{Name: "remove", Run: func(_ context.Context, t *cloud.Task) error {
		y.mu.Lock()
		defer y.mu.Unlock()
		delete(y.instances, t.Ref)
		return nil
	}}}
}

func (y *toy) Delete() []cloud.Step { return y.Discard() }

func (y *toy) Scrub(context.Context, string) error { return nil }

func (y *toy) SetCluster(_ context.Context, ref, cluster string) error {
	return y.change(ref, func(i *cloud.Instance) { i.Cluster = cluster })
}

func (y *toy) SetEpoch(cloud.OwnerEpoch) {}

func (y *toy) MarkEpoch(context.Context, string) error { return nil }

func (y *toy) Oldest(ctx context.Context) (cloud.Instance, bool, error) {
	all, err := y.List(ctx)
	if err != nil || len(all) == 0 {
		return cloud.Instance{}, false, err
	}
	return all[0], true, nil
}

func (y *toy) Get(_ context.Context, ref string) (found cloud.Instance, err error) {
	err = y.change(ref, func(i *cloud.Instance) { found = *i })
	return found, err
}

func (y *toy) List(context.Context) ([]cloud.Instance, error) {
	y.mu.Lock()
	defer y.mu.Unlock()
	var all []cloud.Instance
	for _, i := range y.instances {
		all = append(all, i)
	}
	return all, nil
}

func (y *toy) ProviderID(ref string) string { return "toy://" + ref }

func (y *toy) Types(context.Context) (map[string]cloud.Type, error) { return y.Recorded() }

func (y *toy) Recorded() (map[string]cloud.Type, error) {
	types := map[string]cloud.Type{}
	for _, name := range []string{"SMALL", "LARGE"} {
		types[name] = cloud.Type{Name: name, Arch: "amd64", PricePerHour: 1, Currency: "EUR", Allocatable: map[string]string{"cpu": "1"}}
	}
	return types, nil
}

func (y *toy) Missing(context.Context) error { return nil }

func (y *toy) Access(context.Context) error {
	if y.token != "sesame" {
		return fmt.Errorf("%w: the town does not know the token", cloud.ErrDenied)
	}
	return nil
}

func (y *toy) Probe(_ context.Context, wanted []cloud.Wanted) []cloud.Finding {
	return []cloud.Finding{{What: "town " + y.town, Text: fmt.Sprintf("it sells all %d types", len(wanted))}}
}

func (y *toy) Contact(context.Context, string, time.Time) error { return nil }

func (y *toy) HeardWithin(string, time.Duration) bool { return true }

func (y *toy) Knock(string) {}

func (y *toy) Deliver(_ context.Context, cmd command.Command) (delivery.Report, error) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.delivered = append(y.delivered, cmd)
	return delivery.Report{OK: true, Confirm: func(error) {}}, nil
}

func (y *toy) Forget(string) {}
