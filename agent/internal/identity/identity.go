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
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"bigfleet-providers/shared/symlink"
	"bigfleet-providers/shared/token"
)

const (
	hostFile  = "host-id"
	tokenFile = "token.json"
	idBytes   = 16
)

// HostID returns the id in dir, and makes one where there is none. One that
// cannot be read is replaced, and damaged is true: the provider may know the host
// by the old one. With an error there is no id: one that is gone after a restart
// would lock the host out.
func HostID(dir string) (id string, damaged bool, err error) {
	path := filepath.Join(dir, hostFile)
	body, err := os.ReadFile(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return "", false, err
	default:
		id = strings.TrimSpace(string(body))
		if raw, err := hex.DecodeString(id); err == nil && len(raw) == idBytes {
			return id, false, nil
		}
		damaged = true
	}
	raw := make([]byte, idBytes)
	rand.Read(raw) // never fails, by its documentation
	id = hex.EncodeToString(raw)
	if err := write(path, []byte(id+"\n")); err != nil {
		return "", damaged, err
	}
	return id, damaged, nil
}

// FindHostID returns the id in dir, "" when there is none or it is damaged. It
// makes none.
func FindHostID(dir string) string {
	body, err := os.ReadFile(filepath.Join(dir, hostFile))
	id := strings.TrimSpace(string(body))
	if raw, decodeErr := hex.DecodeString(id); err != nil || decodeErr != nil || len(raw) != idBytes {
		return ""
	}
	return id
}

// renewed is the content of the token's file.
type renewed struct {
	// Replaces is the SHA-256 of the configured token: a configuration with
	// another token is newer than this file.
	Replaces string `json:"replaces"`
	Token    string `json:"token"`
}

// Token returns the token in dir that replaces the configured one, "" when there
// is none.
func Token(dir, configured string) (string, error) {
	body, err := os.ReadFile(filepath.Join(dir, tokenFile))
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) {
		return "", nil
	}
	if err != nil {
		return "", err
	}
	var r renewed
	if json.Unmarshal(body, &r) != nil { // whose error could quote the token
		return "", fmt.Errorf("%s: not what was written there", filepath.Join(dir, tokenFile))
	}
	if r.Replaces != sum(configured) {
		return "", nil
	}
	if _, err := token.Decode(r.Token); err != nil {
		return "", fmt.Errorf("%s: %w", filepath.Join(dir, tokenFile), err)
	}
	return r.Token, nil
}

// SaveToken keeps the token that replaces the configured one. When it returns
// nil, the token is there after a crash.
func SaveToken(dir, configured, replacement string) error {
	if _, err := token.Decode(replacement); err != nil {
		return err
	}
	body, err := json.Marshal(renewed{Replaces: sum(configured), Token: replacement})
	if err != nil {
		return err
	}
	return write(filepath.Join(dir, tokenFile), append(body, '\n'))
}

func sum(configured string) string {
	s := sha256.Sum256([]byte(configured))
	return hex.EncodeToString(s[:])
}

// write replaces a file of mode 0600 durably. What a killed agent left of the new
// one is written over by the next.
func write(path string, body []byte) (err error) {
	if path, err = symlink.Target(path); err != nil {
		return err
	}
	dir := filepath.Dir(path)
	temp, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	_, err = temp.Write(body)
	if err == nil {
		err = temp.Sync()
	}
	if err = errors.Join(err, temp.Close()); err == nil {
		err = os.Rename(temp.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(temp.Name()))
	}
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
