package fakecloud

import (
	"crypto/md5" //nolint:gosec // the API prints MD5 fingerprints
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
	"strings"
	"time"

	"github.com/google/uuid"
)

// sshKey is a key of a project: its servers get every enabled one at boot.
type sshKey struct {
	object
	publicKey   string
	fingerprint string
	disabled    bool
}

type sshKeyBody struct {
	ID             string    `json:"id"`
	Name           string    `json:"name"`
	PublicKey      string    `json:"public_key"`
	Fingerprint    string    `json:"fingerprint"`
	CreatedAt      time.Time `json:"created_at"`
	UpdatedAt      time.Time `json:"updated_at"`
	OrganizationID string    `json:"organization_id"`
	ProjectID      string    `json:"project_id"`
	Disabled       bool      `json:"disabled"`
}

func sshKeyView(k *sshKey) sshKeyBody {
	return sshKeyBody{
		ID: k.id, Name: k.name, PublicKey: k.publicKey, Fingerprint: k.fingerprint, CreatedAt: zulu(k.created), UpdatedAt: zulu(k.modified),
		OrganizationID: DefaultOrganizationID, ProjectID: k.project, Disabled: k.disabled,
	}
}

// fingerprint is "256 MD5:94:db:… (ssh-ed25519)" for a key in the form of an
// authorized_keys line.
func fingerprint(line string) (string, error) {
	fields := strings.Fields(line)
	if len(fields) < 2 {
		return "", errors.New("want a type and a key, as in an authorized_keys line")
	}
	blob, err := base64.StdEncoding.DecodeString(fields[1])
	if err != nil {
		return "", fmt.Errorf("the key is not base64: %w", err)
	}
	parts := sshStrings(blob)
	if len(parts) < 2 || string(parts[0]) != fields[0] {
		return "", fmt.Errorf("the key is not of type %s", fields[0])
	}
	size := 256
	switch fields[0] {
	case "ssh-rsa":
		modulus := strings.TrimLeft(string(parts[len(parts)-1]), "\x00")
		if modulus == "" {
			return "", errors.New("the key has no modulus")
		}
		size = (len(modulus)-1)*8 + bits.Len8(modulus[0])
	case "ecdsa-sha2-nistp384":
		size = 384
	case "ecdsa-sha2-nistp521":
		size = 521
	}
	sum := md5.Sum(blob) //nolint:gosec // as above
	return fmt.Sprintf("%d MD5:%s (%s)", size, strings.ReplaceAll(fmt.Sprintf("% x", sum), " ", ":"), fields[0]), nil
}

// sshStrings splits a key into its length-prefixed parts (RFC 4251), up to the
// first that is cut short.
func sshStrings(blob []byte) [][]byte {
	var parts [][]byte
	for len(blob) >= 4 {
		n := binary.BigEndian.Uint32(blob)
		if uint64(n) > uint64(len(blob)-4) {
			break
		}
		parts = append(parts, blob[4:4+n])
		blob = blob[4+n:]
	}
	return parts
}

func (c *Cloud) sshKey(q *request) (*sshKey, error) {
	k, found := c.inv.sshKeys.byID(q.id)
	if !found || !q.caller.sees(k.project) {
		return nil, notFound(resSSHKey, q.id)
	}
	return k, nil
}

func (c *Cloud) listSSHKeys(q *request) (*response, error) {
	get := q.query.Get
	keep := func(k *sshKey) bool {
		return q.caller.visible(&k.object, get("project_id"), get("organization_id"), get("name")) &&
			(get("disabled") == "" || (get("disabled") == "true") == k.disabled)
	}
	return countedList(q, "ssh_keys", c.inv.sshKeys.all, keep, sshKeyView)
}

func (c *Cloud) createSSHKey(q *request) (*response, error) {
	var in struct {
		Name      string
		PublicKey string `json:"public_key"`
		ProjectID string `json:"project_id"`
	}
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	if uuid.Validate(in.ProjectID) != nil {
		return nil, invalid(errorDetail{ArgumentName: "project_id", Reason: "format", HelpMessage: "value must be a valid UUID"})
	}
	if !q.caller.sees(in.ProjectID) {
		return nil, permissionDenied("project", "read")
	}
	k, err := c.addSSHKey(in.Name, in.ProjectID, in.PublicKey)
	if err != nil {
		return nil, invalid(errorDetail{ArgumentName: "public_key", Reason: "format", HelpMessage: err.Error()})
	}
	return ok(sshKeyView(k))
}

func (c *Cloud) addSSHKey(name, project, line string) (*sshKey, error) {
	sum, err := fingerprint(line)
	if err != nil {
		return nil, err
	}
	k := &sshKey{object: c.inv.newObject(name, "", project, nil), publicKey: line, fingerprint: sum}
	c.inv.sshKeys.add(k)
	return k, nil
}

func (c *Cloud) getSSHKey(q *request) (*response, error) {
	k, err := c.sshKey(q)
	if err != nil {
		return nil, err
	}
	return ok(sshKeyView(k))
}

func (c *Cloud) updateSSHKey(q *request) (*response, error) {
	k, err := c.sshKey(q)
	if err != nil {
		return nil, err
	}
	var in struct {
		Name     *string
		Disabled *bool
	}
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	set(&k.name, in.Name)
	set(&k.disabled, in.Disabled)
	k.modified = time.Now()
	return ok(sshKeyView(k))
}

func (c *Cloud) deleteSSHKey(q *request) (*response, error) {
	k, err := c.sshKey(q)
	if err != nil {
		return nil, err
	}
	c.inv.sshKeys.remove(k)
	return noContent()
}
