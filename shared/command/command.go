// Package command is the schema of the bootstrap channel: what the provider
// and the on-host agent say to each other over HTTPS. Both import it and are
// tested together; testdata holds golden JSON of every message.
//
// The provider decodes strictly (an unknown field is an error), the agent
// leniently, so that an old agent lives with a new provider.
package command

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"
)

// Paths and headers of the channel.
const (
	PathCommand  = "/v1/command"  // GET ?machine_id=ID[&wait=SECONDS]: 200 Command, 204 nothing pending
	PathAck      = "/v1/ack"      // POST ?machine_id=ID Ack: 200 settled, 409 not the machine's command
	PathPackages = "/v1/packages" // GET /v1/packages/FILE: agent packages for the first boot

	ParamMachineID = "machine_id"
	ParamWait      = "wait"

	// HeaderVersion carries the agent's version, HeaderKinds the command kinds
	// it knows (comma-separated), HeaderBoot an id that differs between two
	// hosts that were cloned from one image.
	HeaderVersion = "Bigfleet-Agent-Version"
	HeaderKinds   = "Bigfleet-Agent-Kinds"
	HeaderBoot    = "Bigfleet-Agent-Boot"
	// HeaderHost carries what the host alone knows and keeps: with the token it
	// proves that a request comes from the machine's host. A secret.
	HeaderHost = "Bigfleet-Agent-Host"
	// HeaderToken carries, in the answer to a poll, the token that the agent is to
	// use from now on. A secret.
	HeaderToken = "Bigfleet-Agent-Token" //nolint:gosec // the name of a header
	// HeaderHave names the command that the agent is working on. A provider
	// that knows it treats a poll as if that command were not pending, so that
	// the blob is not sent again and again while a hook runs; to one that does
	// not, the agent polls at a slower pace.
	HeaderHave = "Bigfleet-Agent-Have"

	// MediaType is the content type of commands and acks.
	MediaType = "application/json"
)

// Limits of the channel. The blob limit is the contract's limit on
// bootstrap_blob; the others bound what either side must hold.
const (
	MaxBlobBytes  = 1 << 20          // a decoded bootstrap blob
	MaxIDBytes    = 256              // machine_id, cluster_id, command_id, provider_id, node_name
	MaxAckBytes   = 64 << 10         // a whole ack body
	MaxErrorBytes = 4 << 10          // Ack.Error
	MaxWait       = 60 * time.Second // a long poll; longer waits are cut to it
	// MaxCommandBytes bounds a command body: the blob in base64 and room for
	// the rest.
	MaxCommandBytes = MaxBlobBytes/3*4 + 64<<10
)

// Kind is what a command asks of the host.
type Kind string

// The command kinds.
const (
	Configure Kind = "configure" // join the cluster with the blob
	Drain     Kind = "drain"     // leave the cluster and wipe what it left
)

// Kinds lists every kind this version knows.
func Kinds() []Kind { return []Kind{Configure, Drain} }

// Command is one order for one machine. Its id is the operation_id of the
// transition: a second delivery under the same id is the same command.
type Command struct {
	CommandID  string `json:"command_id"`
	Kind       Kind   `json:"kind"`
	MachineID  string `json:"machine_id"`
	ClusterID  string `json:"cluster_id"`
	ProviderID string `json:"provider_id"` // the node's spec.providerID
	NodeName   string `json:"node_name"`   // a DNS label
	// Blob is the opaque join material; Configure only. It must never be
	// logged or written to disk.
	Blob []byte `json:"blob,omitempty"`
	// GraceSeconds is how long workloads may take to leave; Drain only.
	GraceSeconds int64     `json:"grace_seconds,omitempty"`
	Deadline     time.Time `json:"deadline"` // RFC 3339; after it the provider has given up
}

// Ack is the agent's report on a command. OK means that the hook succeeded and,
// for Configure, that the node is Ready.
type Ack struct {
	CommandID string    `json:"command_id"`
	OK        bool      `json:"ok"`
	Error     string    `json:"error,omitempty"` // set when OK is false; no blob, no token
	Started   time.Time `json:"started"`
	Finished  time.Time `json:"finished"`
}

// Validate reports every fault of c at once.
func (c *Command) Validate() error {
	errs := []error{checkID("command_id", c.CommandID), checkID("machine_id", c.MachineID), checkID("cluster_id", c.ClusterID)}
	if !slices.Contains(Kinds(), c.Kind) {
		errs = append(errs, fmt.Errorf("kind: %q is unknown, want one of %q", c.Kind, Kinds()))
	}
	if c.Kind != Configure && len(c.Blob) > 0 {
		errs = append(errs, fmt.Errorf("blob: only a %s command has one", Configure))
	}
	if len(c.Blob) > MaxBlobBytes {
		errs = append(errs, fmt.Errorf("blob: %d bytes, the limit is %d", len(c.Blob), MaxBlobBytes))
	}
	errs = append(errs, checkText("provider_id", c.ProviderID), checkText("node_name", c.NodeName))
	if c.GraceSeconds < 0 {
		errs = append(errs, fmt.Errorf("grace_seconds: %d is negative", c.GraceSeconds))
	}
	if c.Deadline.IsZero() {
		errs = append(errs, errors.New("deadline: missing"))
	}
	return errors.Join(errs...)
}

// Validate reports every fault of a at once.
func (a *Ack) Validate() error {
	errs := []error{checkID("command_id", a.CommandID)}
	if len(a.Error) > MaxErrorBytes {
		errs = append(errs, fmt.Errorf("error: %d bytes, the limit is %d", len(a.Error), MaxErrorBytes))
	}
	if !utf8.ValidString(a.Error) {
		errs = append(errs, errors.New("error: not UTF-8"))
	}
	if a.OK && a.Error != "" {
		errs = append(errs, errors.New("error: set although ok is true"))
	}
	if !a.OK && a.Error == "" {
		errs = append(errs, errors.New("error: missing although ok is false"))
	}
	if a.Finished.Before(a.Started) {
		errs = append(errs, errors.New("finished: before started"))
	}
	return errors.Join(errs...)
}

func checkID(field, v string) error {
	if v == "" {
		return fmt.Errorf("%s: missing", field)
	}
	return checkText(field, v)
}

// checkText refuses what cannot be an environment variable of a hook or would
// break a log line.
func checkText(field, v string) error {
	switch {
	case len(v) > MaxIDBytes:
		return fmt.Errorf("%s: %d bytes, the limit is %d", field, len(v), MaxIDBytes)
	case !utf8.ValidString(v):
		return fmt.Errorf("%s: not UTF-8", field)
	case strings.ContainsFunc(v, unicode.IsControl):
		return fmt.Errorf("%s: has a control character", field)
	}
	return nil
}

// DecodeCommand reads a command as the agent does: unknown fields are skipped.
// It reads at most MaxCommandBytes and validates the result. A command that is
// readable but not valid is returned beside the error, so that it can be
// refused by its id.
func DecodeCommand(r io.Reader) (*Command, error) {
	var c Command
	if err := decode(r, MaxCommandBytes, false, &c); err != nil {
		return nil, fmt.Errorf("command: %w", err)
	}
	return &c, c.Validate()
}

// DecodeAck reads an ack as the provider does: unknown fields and trailing
// data are errors. It reads at most MaxAckBytes and validates the result; an
// ack that is not valid is returned beside the error.
func DecodeAck(r io.Reader) (*Ack, error) {
	var a Ack
	if err := decode(r, MaxAckBytes, true, &a); err != nil {
		return nil, fmt.Errorf("ack: %w", err)
	}
	return &a, a.Validate()
}

// ErrTooLarge says that a body is over its limit.
var ErrTooLarge = errors.New("body too large")

func decode(r io.Reader, limit int64, strict bool, into any) error {
	body, err := io.ReadAll(io.LimitReader(r, limit+1))
	if err != nil {
		return err
	}
	if int64(len(body)) > limit {
		return fmt.Errorf("%w: over %d bytes", ErrTooLarge, limit)
	}
	dec := json.NewDecoder(bytes.NewReader(body))
	if strict {
		dec.DisallowUnknownFields()
	}
	if err := dec.Decode(into); err != nil {
		return err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return errors.New("data after the JSON value")
	}
	return nil
}
