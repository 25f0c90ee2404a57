package host

import (
	"encoding/json"
	"encoding/pem"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"bigfleet-providers/cloudinit"
	"bigfleet-providers/shared/command"
)

// channel is a stub of the provider's end of the bootstrap channel.
type channel struct {
	*httptest.Server
	ca string

	mu       sync.Mutex
	changed  chan struct{} // closed and replaced at each change
	parked   map[string]int
	boots    map[string][]string // boot ids seen, by machine
	commands map[string]command.Command
	acks     map[string][]command.Ack
	conns    int // made
	open     int // of them
	refused  int
}

func newChannel(t *testing.T) *channel {
	t.Helper()
	c := &channel{
		changed: make(chan struct{}), parked: map[string]int{}, boots: map[string][]string{},
		commands: map[string]command.Command{}, acks: map[string][]command.Ack{},
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET "+command.PathCommand, c.poll)
	mux.HandleFunc("POST "+command.PathAck, c.ack)
	c.Server = httptest.NewUnstartedServer(mux)
	c.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	c.Config.ConnState = func(_ net.Conn, s http.ConnState) {
		c.change(func() {
			switch s { //nolint:exhaustive // what is in between is of no interest
			case http.StateNew:
				c.conns++
				c.open++
			case http.StateClosed:
				c.open--
			}
		})
	}
	c.StartTLS() // HTTP/1.1, as the provider's
	t.Cleanup(c.Close)
	c.ca = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Certificate().Raw}))
	return c
}

// userData is what a server of this provider boots with.
func (c *channel) userData(t *testing.T, machineID string) []byte {
	t.Helper()
	return userData(t, cloudinit.Params{Endpoint: c.URL, CAPEM: c.ca, MachineID: machineID})
}

func (c *channel) change(f func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	f()
	close(c.changed)
	c.changed = make(chan struct{})
}

// authorised answers 401 to a host that did not find its token.
func (c *channel) authorised(w http.ResponseWriter, r *http.Request) (machineID string, ok bool) {
	if r.Header.Get("Authorization") == "Bearer "+testToken {
		return r.URL.Query().Get(command.ParamMachineID), true
	}
	c.change(func() { c.refused++ })
	w.WriteHeader(http.StatusUnauthorized)
	return "", false
}

func (c *channel) poll(w http.ResponseWriter, r *http.Request) {
	id, ok := c.authorised(w, r)
	if !ok {
		return
	}
	seconds, _ := strconv.Atoi(r.URL.Query().Get(command.ParamWait)) // 0 answers at once
	c.change(func() {
		c.parked[id]++
		boot := r.Header.Get(command.HeaderBoot)
		if n := len(c.boots[id]); n == 0 || c.boots[id][n-1] != boot {
			c.boots[id] = append(c.boots[id], boot)
		}
	})
	defer c.change(func() { c.parked[id]-- })
	timeout := time.After(time.Duration(seconds) * time.Second)
	for {
		c.mu.Lock()
		cmd, pending := c.commands[id]
		changed := c.changed
		c.mu.Unlock()
		if pending && r.Header.Get(command.HeaderHave) != cmd.CommandID {
			w.Header().Set("Content-Type", command.MediaType)
			_ = json.NewEncoder(w).Encode(cmd)
			return
		}
		select {
		case <-changed:
		case <-r.Context().Done():
			return
		case <-timeout:
			w.WriteHeader(http.StatusNoContent)
			return
		}
	}
}

func (c *channel) ack(w http.ResponseWriter, r *http.Request) {
	id, ok := c.authorised(w, r)
	if !ok {
		return
	}
	ack, err := command.DecodeAck(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	c.change(func() {
		delete(c.commands, id)
		c.acks[id] = append(c.acks[id], *ack)
	})
}

// send puts a command into the machine's mailbox and waits for the report.
func (c *channel) send(t *testing.T, machineID string, kind command.Kind, id, blob string) command.Ack {
	t.Helper()
	before := 0
	c.change(func() {
		before = len(c.acks[machineID])
		c.commands[machineID] = command.Command{
			CommandID: id, Kind: kind, MachineID: machineID, ClusterID: "cluster-a", NodeName: "node",
			ProviderID: "fake://1", Blob: []byte(blob), Deadline: time.Now().Add(time.Minute),
		}
	})
	var ack command.Ack
	c.await(t, "report on "+id, func() bool {
		if len(c.acks[machineID]) == before {
			return false
		}
		ack = c.acks[machineID][before]
		return true
	})
	return ack
}

// await waits until cond, which is called with the lock held, is true.
func (c *channel) await(t *testing.T, what string, cond func() bool) {
	t.Helper()
	// A fleet's handshakes take seconds of a processor, and a busy machine has a tenth
	// of one for them.
	timeout := time.After(4 * time.Minute)
	for {
		c.mu.Lock()
		ok, changed := cond(), c.changed
		c.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			t.Fatalf("timed out: %s", what)
		}
	}
}

// bootsOf returns the boot ids under which a machine polled.
func (c *channel) bootsOf(machineID string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.boots[machineID])
}

// connections counts all that were made.
func (c *channel) connections() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.conns
}

func (c *channel) awaitParked(t *testing.T, machineID string, n int) {
	t.Helper()
	c.await(t, strconv.Itoa(n)+" parked polls of "+machineID, func() bool { return c.parked[machineID] == n })
}
