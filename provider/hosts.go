package provider

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"

	"bigfleet-providers/provider/internal/channel"
	"bigfleet-providers/provider/internal/machine"
	"bigfleet-providers/provider/internal/store"
	"bigfleet-providers/provider/internal/telemetry"
)

// hostLocks keep in the machines' records which host may use their token.
type hostLocks struct{ st *store.Store }

// LockedTo implements channel.Locks.
func (l hostLocks) LockedTo(machineID string) string {
	rec, _, ok := l.st.Get(machineID)
	if !ok {
		return ""
	}
	return rec.LockedTo()
}

// Lock implements channel.Locks.
func (l hostLocks) Lock(ctx context.Context, machineID, life, digest string) (string, error) {
	mutation := machine.LockHost(life, digest)
	if rec, _, ok := l.st.Get(machineID); !ok {
		return "", nil
	} else if _, change, err := mutation(rec); err != nil || change == machine.Unchanged {
		return rec.LockedTo(), err // nothing to write for
	}
	rec, err := l.st.Do(ctx, machineID, mutation)
	if err != nil {
		return "", err
	}
	return rec.LockedTo(), nil
}

// lifeOf is the life whose tokens a machine's host may use, and whether there is
// such a machine.
func lifeOf(st *store.Store, machineID string) (life channel.Life, known bool) {
	rec, _, known := st.Get(machineID)
	if now, ok := rec.Life(); ok {
		life = channel.Life{ID: now.ID, Plain: now.Plain}
	}
	return life, known
}

// hostsHandler shows the hosts on the admin socket.
func hostsHandler(ch *channel.Server) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_ = json.NewEncoder(w).Encode(ch.Hosts()) // the other end may be gone
	})
}

// unlockHandler lets another host of a machine be the first again.
func unlockHandler(st *store.Store, ch *channel.Server, log *slog.Logger) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		id := r.PathValue("machine")
		rec, _, ok := st.Get(id)
		switch {
		case !ok:
			http.Error(w, "no such machine", http.StatusNotFound)
			return
		case rec.LockedTo() == "":
			ch.Unlocked(id) // what hosts with the same id did is not on record
			http.Error(w, "the machine's token is tied to no host; the next one that states an id gets it", http.StatusConflict)
			return
		}
		if _, err := st.Do(r.Context(), id, machine.UnlockHost()); err != nil {
			log.Error("a machine's token could not be untied from its host", telemetry.KeyMachine, id, telemetry.KeyError, err.Error())
			http.Error(w, "it could not be recorded: "+err.Error(), http.StatusServiceUnavailable)
			return
		}
		ch.Unlocked(id)
		log.Warn("an operator untied a machine's token from its host: the next one that polls gets it", telemetry.KeyMachine, id, "uid", r.Context().Value(peerKey{}))
		w.WriteHeader(http.StatusNoContent)
	})
}
