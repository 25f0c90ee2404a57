// Package identity is what a host keeps in its state directory to prove to the
// provider that it is the machine's: an id that it made up at its first start
// and tells nobody else, and the token that replaced the configured one.
package identity

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"
	"syscall"

	"bigfleet-providers/agent/internal/statedir"
	"bigfleet-providers/shared/token"
)

const (
	hostFile  = "host-id"
	tokenFile = "token.json"
	idBytes   = 16
)

// HostID returns the id in dir, and makes one where there is none. One that is
// damaged is replaced, and damaged is true: the provider may know the host by the
// old one. With an error there is no id: one that is gone after a restart would
// lock the host out.
func HostID(dir *statedir.Dir) (id string, damaged bool, err error) {
	body, err := dir.Read(hostFile)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return "", false, err
	default:
		if id = hostID(body); id != "" {
			return id, false, nil
		}
		damaged = true
	}
	raw := make([]byte, idBytes)
	rand.Read(raw) // never fails, by its documentation
	id = hex.EncodeToString(raw)
	if err := dir.Write(hostFile, []byte(id+"\n")); err != nil {
		return "", damaged, err
	}
	return id, damaged, nil
}

// hostID is the id in the content of a file, "" when that is damaged.
func hostID(body []byte) string {
	id := strings.TrimSpace(string(body))
	if raw, err := hex.DecodeString(id); err != nil || len(raw) != idBytes {
		return ""
	}
	return id
}

// FindHostID returns the id in the directory at path, "" when there is none or it is damaged. It
// makes none.
func FindHostID(path string) string {
	body, err := statedir.ReadFile(path, hostFile)
	if err != nil {
		return ""
	}
	return hostID(body)
}

// renewed is the content of the token's file.
type renewed struct {
	// Replaces is the SHA-256 of the configured token: a configuration with
	// another token is newer than this file.
	Replaces string `json:"replaces"`
	Token    string `json:"token"`
}

// FindToken returns the token in the directory at path that replaces the configured one, "" when there
// is none.
func FindToken(path, configured string) (string, error) {
	body, err := statedir.ReadFile(path, tokenFile)
	return replacement(body, err, filepath.Join(path, tokenFile), configured)
}

// Token does the same in a directory that is open.
func Token(dir *statedir.Dir, configured string) (string, error) {
	body, err := dir.Read(tokenFile)
	return replacement(body, err, dir.Path(tokenFile), configured)
}

func replacement(body []byte, err error, path, configured string) (string, error) {
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	var r renewed
	if json.Unmarshal(body, &r) != nil { // whose error could quote the token
		return "", fmt.Errorf("%s: not what was written there", path)
	}
	if r.Replaces != sum(configured) {
		return "", nil
	}
	if _, err := token.Decode(r.Token); err != nil {
		return "", fmt.Errorf("%s: %w", path, err)
	}
	return r.Token, nil
}

// SaveToken keeps the token that replaces the configured one. When it returns
// nil, the token is there after a crash.
func SaveToken(dir *statedir.Dir, configured, replacement string) error {
	if _, err := token.Decode(replacement); err != nil {
		return err
	}
	body, err := json.Marshal(renewed{Replaces: sum(configured), Token: replacement})
	if err != nil {
		return err
	}
	return dir.Write(tokenFile, append(body, '\n'))
}

func sum(configured string) string {
	s := sha256.Sum256([]byte(configured))
	return hex.EncodeToString(s[:])
}
