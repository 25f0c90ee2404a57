package agent

import (
	"errors"
	"net/http"

	"bigfleet-providers/agent/internal/identity"
	"bigfleet-providers/agent/internal/poll"
	"bigfleet-providers/shared/token"
)

// identify finds out what the host proves itself by. What cannot be read or
// written now is tried again in each turn: a host whose disk was full at its first
// start makes its id when there is room.
func (a *agent) identify() {
	if a.state == nil || a.identified {
		return
	}
	var idErr error
	if a.client.HostID == "" {
		id, damaged, err := identity.HostID(a.state)
		if damaged && err == nil {
			a.log.Error("this host's id was damaged and another was made; a provider that knows the old one refuses this host until it is unlocked")
		}
		a.client.HostID, idErr = id, err
	}
	var tokenErr error
	if !a.tokenRead {
		var renewed string
		renewed, tokenErr = identity.Token(a.state, string(a.cfg.Token))
		a.use(renewed)
		a.tokenRead = tokenErr == nil
	}
	err := errors.Join(idErr, tokenErr)
	if err == nil {
		if a.noIdentity != "" {
			a.log.Info("this host has its identity now")
		}
		a.identified, a.noIdentity = true, ""
		return
	}
	if err.Error() == a.noIdentity {
		return
	}
	a.noIdentity = err.Error()
	if idErr != nil {
		a.log.Error("this host has no id, and a provider that knows it by one refuses it; make the state directory writable, free space there", "error", idErr)
	}
	if tokenErr != nil {
		a.log.Error("the renewed token cannot be read; using the configured one", "error", tokenErr)
	}
}

// use makes the token the one that is sent; the one before stays as the other.
func (a *agent) use(replacement string) {
	if replacement == "" || replacement == a.client.Token {
		return
	}
	a.otherToken, a.client.Token = a.client.Token, replacement
}

// renew takes over the token that the provider handed out because its bootstrap
// secret was changed. It is on disk before it is used: an agent that forgot it
// would be locked out when the secret before is not accepted any more.
func (a *agent) renew(replacement string) {
	if replacement == "" || replacement == a.client.Token || replacement == a.unkept {
		return
	}
	if _, err := token.Decode(replacement); err != nil {
		a.log.Error("the provider handed out something that is no token; it is passed by")
		a.unkept = replacement
		return
	}
	if a.state != nil {
		if err := identity.SaveToken(a.state, string(a.cfg.Token), replacement); err != nil {
			a.log.Warn("the provider's new token cannot be kept; going on with the old one", "error", err)
			return
		}
	}
	a.use(replacement)
	a.log.Info("the provider's bootstrap secret was changed; its new token is used from now on")
}

// refused tries the other token, if there is one, after a 401: a provider may
// have gone back to the secret before. None is ever dropped.
func (a *agent) refused(err error) {
	if status, ok := errors.AsType[*poll.StatusError](err); ok && status.Code == http.StatusUnauthorized && a.otherToken != "" {
		a.otherToken, a.client.Token = a.client.Token, a.otherToken
	}
}
