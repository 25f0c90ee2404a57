package provider

import (
	"context"
	"log/slog"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"bigfleet-providers/provider/internal/offering"
)

// Vendor is whose cloud a program serves, and all that the program knows of it. It
// comes from a package of its own, such as provider/scaleway, whose main hands it
// to Main.
type Vendor struct {
	// Name is the program's, begins the names of its metrics, and is what --provider
	// is unless given.
	Name string
	// Title is the vendor's name for people.
	Title string
	// Delivers says that Backend.Delivery reaches hosts. Without it the bootstrap
	// channel does, which has flags of its own.
	Delivers bool
	// Fakes says that Settings.Open can start a fake of the cloud. Without it there is
	// no --use-fake-backend.
	Fakes bool
	// Help is what --help says of this vendor at the flags that all have.
	Help Help
	// Settings makes what one command line sets, all of it still unset.
	Settings func() Settings
}

// Help are parts of sentences.
type Help struct {
	Owner         Owner
	Mix           string // what --seed-count makes, such as "half SMALL and half LARGE"
	Fake          string // more on --use-fake-backend; "" for nothing
	CreateTimeout string // more on --create-timeout; "" for nothing
	CallRate      string // the vendor's flag that limits its calls, such as --api-rate; "" for none
}

// Owner names the flags, such as --zone, that set what of Scope a state file belongs
// to; "" for what cannot be set.
type Owner struct{ Zone, Substrate, Project string }

// String is the flags as a sentence has them.
func (o Owner) String() string {
	flags := slices.DeleteFunc([]string{o.Zone, o.Substrate, o.Project}, func(flag string) bool { return flag == "" })
	if n := len(flags); n > 1 {
		flags = append(flags[:n-2], flags[n-2]+" and "+flags[n-1])
	}
	return strings.Join(flags, ", ")
}

// Settings are what an operator sets for one vendor alone, and what follows from
// that. Load calls Flags once, parses, reads the environment, and calls Complete;
// the other methods may be called after that, in any order.
type Settings interface {
	// Flags declares the vendor's flags.
	Flags() Flags
	// Complete sets what was left to the program and depends on what was given, in c
	// as well.
	Complete(c *Config)
	// Validate judges what Flags declared, and reports every fault at once. It makes
	// no call to the cloud.
	Validate(c *Config) error
	// Scope is what of the cloud is served.
	Scope(c *Config) Scope
	// Builtin is what is offered without an offerings file: n machines.
	Builtin(n int) []offering.Offering
	// LogAccount says on the log with whose account the cloud is about to be used, and
	// what is doubtful about the way to it; never a secret.
	LogAccount(log *slog.Logger)
	// Open makes the adapter, without a call to the cloud. With Opening.Trial, which
	// only a vendor that Fakes is given, it starts a fake of the cloud and makes the
	// same adapter for that. The caller closes the backend.
	Open(ctx context.Context, c *Config, o Opening) (*Backend, error)
}

// Flags are a vendor's flags, by the place at which --help and the docs show them;
// nil for none.
type Flags struct {
	Scope   *pflag.FlagSet // behind --provider: what of the cloud is served
	Account *pflag.FlagSet // at the head of the vendor's group: the account, new servers
	Calls   *pflag.FlagSet // behind --base-user-data: how often the cloud is called
	Fake    *pflag.FlagSet // the fake backend's
	// Environment is in the order in which its faults are reported.
	Environment []Variable
}

// Variable is an environment variable that a flag falls back to, or to the content
// of the file that the variable with _FILE behind its name points to.
type Variable struct {
	Flag  string
	Name  string
	Value *string // the flag's
}

// Scope is what of the cloud one process serves, and what holds for all servers
// in it. A state file belongs to one.
type Scope struct {
	Zone      string // or location
	Substrate string // "" where there is one only
	Project   string // its id
	// UserDataLimit is how many bytes of user data a server can have. It counts where
	// the bootstrap channel is used.
	UserDataLimit int
	// Offerings is what the offerings file must keep to; whose cloud it is, and by
	// which flag, comes from Vendor.
	Offerings offering.Rules
}

// String names it for operators.
func (s Scope) String() string {
	if s.Substrate == "" {
		return "zone " + s.Zone
	}
	return "zone " + s.Zone + ", " + s.Substrate
}

// NewFlagSet makes a flag set that shows its flags in the order in which they are
// declared.
func NewFlagSet() *pflag.FlagSet {
	f := pflag.NewFlagSet("", pflag.ContinueOnError)
	f.SortFlags = false
	return f
}
