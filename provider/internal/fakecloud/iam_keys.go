package fakecloud

import (
	"crypto/rand"
	"net"
	"slices"
	"time"

	"github.com/google/uuid"
)

// apiKey is a key of an application, or of the account's owner.
type apiKey struct {
	object         // its id is the access key
	secret         string
	application    *application // nil for the owner's
	rights         []grant      // the owner's only
	description    string
	defaultProject string
	creationIP     string
	expires        time.Time // zero for never

	settled time.Time // until then its rights come and go
	asked   int       // calls before that
}

type apiKeyBody struct {
	AccessKey        string     `json:"access_key"`
	SecretKey        *string    `json:"secret_key"` // in the answer that makes the key, never again
	ApplicationID    *string    `json:"application_id,omitempty"`
	UserID           *string    `json:"user_id,omitempty"`
	Description      string     `json:"description"`
	CreatedAt        time.Time  `json:"created_at"`
	UpdatedAt        time.Time  `json:"updated_at"`
	ExpiresAt        *time.Time `json:"expires_at"`
	DefaultProjectID string     `json:"default_project_id"`
	Editable         bool       `json:"editable"`
	Deletable        bool       `json:"deletable"`
	Managed          bool       `json:"managed"`
	CreationIP       string     `json:"creation_ip"`
}

func apiKeyView(k *apiKey) apiKeyBody {
	b := apiKeyBody{
		AccessKey: k.id, Description: k.description, CreatedAt: zulu(k.created), UpdatedAt: zulu(k.modified),
		DefaultProjectID: k.defaultProject, Editable: true, Deletable: true, CreationIP: k.creationIP,
	}
	if k.application != nil {
		b.ApplicationID = &k.application.id
	} else {
		b.UserID = new(OwnerUserID)
	}
	if !k.expires.IsZero() {
		b.ExpiresAt = new(zulu(k.expires))
	}
	return b
}

func (c *Cloud) apiKey(id string) (*apiKey, error) {
	k, found := c.inv.keys.byID(id)
	if !found {
		return nil, notFound(resAccessKey, id)
	}
	return k, nil
}

func (c *Cloud) addKey(k *apiKey) {
	c.inv.keys.add(k)
	c.inv.bySecret[k.secret] = k
	c.countKeys(k.application, 1)
}

func (c *Cloud) removeKey(k *apiKey) {
	c.inv.keys.remove(k)
	delete(c.inv.bySecret, k.secret)
	c.countKeys(k.application, -1)
}

// countKeys changes an application's counter; the API shows it later.
func (c *Cloud) countKeys(a *application, by int) {
	if a == nil {
		return
	}
	a.keys += by
	c.after(c.delays.Counters, func() { a.shownKeys = a.keys })
}

func (c *Cloud) listAPIKeys(q *request) (*response, error) {
	get := q.query.Get
	access := append(commaList(q.query, "access_keys"), commaList(q.query, "access_key")...)
	keep := func(k *apiKey) bool {
		bearer, kind := OwnerUserID, "user"
		if k.application != nil {
			bearer, kind = k.application.id, "application"
		}
		for _, wanted := range []string{get("bearer_id"), get("application_id"), get("user_id")} {
			if wanted != "" && wanted != bearer {
				return false
			}
		}
		wantedKind := get("bearer_type")
		return (len(access) == 0 || slices.Contains(access, k.id)) &&
			(wantedKind == "" || wantedKind == "unknown_bearer_type" || wantedKind == kind) &&
			(get("description") == "" || k.description == get("description"))
	}
	return countedList(q, "api_keys", c.inv.keys.all, keep, apiKeyView)
}

func (c *Cloud) createAPIKey(q *request) (*response, error) {
	var in struct {
		ApplicationID    *string    `json:"application_id"`
		UserID           *string    `json:"user_id"`
		ExpiresAt        *time.Time `json:"expires_at"`
		DefaultProjectID *string    `json:"default_project_id"`
		Description      string
	}
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	k := &apiKey{secret: uuid.NewString(), description: in.Description, defaultProject: DefaultProjectID}
	switch {
	case (in.ApplicationID == nil) == (in.UserID == nil):
		return nil, invalid(constraint("application_id", "give exactly one of application_id and user_id"))
	case in.UserID != nil && *in.UserID != OwnerUserID:
		return nil, notFound(resUser, *in.UserID)
	case in.UserID != nil:
		k.rights = []grant{{}}
	default:
		var err error
		if k.application, err = c.application(*in.ApplicationID); err != nil {
			return nil, err
		}
	}
	if in.DefaultProjectID != nil {
		if err := c.knownProject("default_project_id", *in.DefaultProjectID); err != nil {
			return nil, err
		}
		k.defaultProject = *in.DefaultProjectID
	}
	if err := k.setExpiry(in.ExpiresAt); err != nil {
		return nil, err
	}
	k.object = c.inv.newObject("", "", "", nil)
	k.id = newAccessKey()
	k.settle(c.keyFlap)
	if host, _, err := net.SplitHostPort(q.RemoteAddr); err == nil {
		k.creationIP = host
	}
	c.addKey(k)
	body := apiKeyView(k)
	body.SecretKey = &k.secret
	return ok(body)
}

func (k *apiKey) setExpiry(at *time.Time) error {
	if at == nil {
		return nil
	}
	if !at.After(time.Now()) {
		return invalid(constraint("expires_at", "must be in the future"))
	}
	k.expires = *at
	return nil
}

// newAccessKey has the form that the vendor's SDK insists on.
func newAccessKey() string {
	const letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ012345" // 32, so that a byte falls evenly
	var b [17]byte
	_, _ = rand.Read(b[:]) // never fails: crypto/rand ends the process instead
	for i := range b {
		b[i] = letters[int(b[i])%len(letters)]
	}
	return "SCW" + string(b[:])
}

func (c *Cloud) getAPIKey(q *request) (*response, error) {
	k, err := c.apiKey(q.id)
	if err != nil {
		return nil, err
	}
	return ok(apiKeyView(k))
}

func (c *Cloud) updateAPIKey(q *request) (*response, error) {
	k, err := c.apiKey(q.id)
	if err != nil {
		return nil, err
	}
	var in struct {
		DefaultProjectID *string `json:"default_project_id"`
		Description      *string
		ExpiresAt        *time.Time `json:"expires_at"`
	}
	if err := q.decode(&in); err != nil {
		return nil, err
	}
	if in.DefaultProjectID != nil {
		if err := c.knownProject("default_project_id", *in.DefaultProjectID); err != nil {
			return nil, err
		}
	}
	if err := k.setExpiry(in.ExpiresAt); err != nil {
		return nil, err
	}
	set(&k.defaultProject, in.DefaultProjectID)
	set(&k.description, in.Description)
	k.modified = time.Now()
	return ok(apiKeyView(k))
}

func (c *Cloud) deleteAPIKey(q *request) (*response, error) {
	k, err := c.apiKey(q.id)
	if err != nil {
		return nil, err
	}
	c.removeKey(k)
	return noContent()
}
