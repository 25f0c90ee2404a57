package lifecycle

import (
	"context"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"

	"bigfleet-providers/provider/internal/machine"
	"bigfleet-providers/provider/internal/telemetry"
)

// Sealer encrypts bootstrap blobs for the time that a Configure is under way,
// so that they survive a restart although the state file holds no credential.
// The key is derived from the bootstrap secret, which is not in the file.
type Sealer struct {
	aead cipher.AEAD
	old  []cipher.AEAD // of the secrets before
}

// sealInfo binds the derived key to this one use.
const sealInfo = "bigfleet provider: bootstrap blob at rest, v1"

// NewSealer derives the key from the bootstrap secret's bytes. What was sealed
// under a previous secret can still be opened.
func NewSealer(secret []byte, previous ...[]byte) (*Sealer, error) {
	aead, err := sealing(secret)
	if err != nil {
		return nil, err
	}
	s := &Sealer{aead: aead}
	for _, p := range previous {
		old, err := sealing(p)
		if err != nil {
			return nil, err
		}
		s.old = append(s.old, old)
	}
	return s, nil
}

func sealing(secret []byte) (cipher.AEAD, error) {
	key, err := hkdf.Key(sha256.New, secret, nil, sealInfo, 32)
	if err != nil {
		return nil, fmt.Errorf("derive the sealing key: %w", err)
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, fmt.Errorf("derive the sealing key: %w", err)
	}
	aead, err := cipher.NewGCM(block)
	if err != nil {
		return nil, fmt.Errorf("derive the sealing key: %w", err)
	}
	return aead, nil
}

// Seal encrypts a blob for one operation of one machine.
func (s *Sealer) Seal(machineID, operationID string, blob []byte) []byte {
	nonce := make([]byte, s.aead.NonceSize(), s.aead.NonceSize()+len(blob)+s.aead.Overhead())
	rand.Read(nonce) // never fails, by its documentation
	return s.aead.Seal(nonce, nonce, blob, sealContext(machineID, operationID))
}

// Open decrypts what Seal made for the same machine and operation.
func (s *Sealer) Open(machineID, operationID string, sealed []byte) ([]byte, error) {
	n := s.aead.NonceSize()
	if len(sealed) < n {
		return nil, errors.New("sealed blob: too short")
	}
	for _, aead := range append([]cipher.AEAD{s.aead}, s.old...) {
		if blob, err := aead.Open(nil, sealed[:n], sealed[n:], sealContext(machineID, operationID)); err == nil {
			return blob, nil
		}
	}
	return nil, errors.New("sealed blob: the bootstrap secret changed since it was sealed (--bootstrap-secret-previous would open it), or the state file is damaged")
}

func sealContext(machineID, operationID string) []byte {
	return []byte(machineID + "\x00" + operationID)
}

// blobWait holds the blob of one Configure that cannot be read from the state,
// from when the shard sends it (perhaps again, after a restart) until the
// operation ends.
type blobWait struct {
	ready chan struct{} // closed once blob is set
	blob  []byte
}

// blobWaitOf is called with e.mu held.
func (e *Engine) blobWaitOf(operationID string) *blobWait {
	w := e.blobs[operationID]
	if w == nil {
		w = &blobWait{ready: make(chan struct{})}
		e.blobs[operationID] = w
	}
	return w
}

// offerBlob gives an operation the blob that its call carried. The first blob
// wins: a replay must not change what an operation in flight delivers.
func (e *Engine) offerBlob(op *machine.Operation, outcome machine.Outcome, blob []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if outcome != machine.Started && e.flights[op.ID] == nil {
		return // it ended in the meantime; nobody would drop the blob again
	}
	w := e.blobWaitOf(op.ID)
	select {
	case <-w.ready:
	default:
		w.blob = append([]byte{}, blob...)
		close(w.ready)
	}
}

// blobOf returns the operation's blob: from the state if it can be unsealed,
// else from the call, waiting for the shard to send it again if need be.
func (e *Engine) blobOf(ctx context.Context, machineID string, op *machine.Operation) ([]byte, error) {
	e.mu.Lock()
	w := e.blobWaitOf(op.ID)
	e.mu.Unlock()
	select {
	case <-w.ready:
		return w.blob, nil
	default:
	}
	if op.Sealed != nil && e.o.Sealer != nil {
		blob, err := e.o.Sealer.Open(machineID, op.ID, op.Sealed)
		if err == nil {
			return blob, nil
		}
		e.o.Log.Warn("the bootstrap blob in the state cannot be read; waiting for the shard to send it again",
			telemetry.KeyMachine, machineID, telemetry.KeyOperation, op.ID, telemetry.KeyError, err.Error())
	} else {
		e.o.Log.Info("the bootstrap blob did not survive the restart; waiting for the shard to send it again",
			telemetry.KeyMachine, machineID, telemetry.KeyOperation, op.ID)
	}
	select {
	case <-w.ready:
		return w.blob, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
