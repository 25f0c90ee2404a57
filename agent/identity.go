package agent

import (
	"errors"
	"net/http"

	"bigfleet-providers/agent/internal/identity"
	"bigfleet-providers/agent/internal/poll"
	"bigfleet-providers/shared/token"
)

// identify finds out what the host proves itself by. dir is the state directory,
// "" for an agent that has none.
func (a *agent) identify(dir string) {
	a.identityDir = dir
	a.client.HostID = a.opt.HostID
	if dir == "" {
		return
	}
	if a.opt.HostID == "" {
		id, damaged, err := identity.HostID(dir)
		switch {
		case err != nil:
			a.log.Error("this host has no id, and a provider that knows it by one refuses it; make the state directory writable and restart the agent", "dir", dir, "error", err)
		case damaged:
			a.log.Error("this host's id was damaged and another was made; a provider that knows the old one refuses this host until it is unlocked", "dir", dir)
		}
		a.client.HostID = id
	}
	renewed, err := identity.Token(dir, string(a.cfg.Token))
	if err != nil {
		a.log.Error("the renewed token cannot be read; using the configured one", "error", err)
	}
	a.use(renewed)
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
	if a.identityDir != "" {
		if err := identity.SaveToken(a.identityDir, string(a.cfg.Token), replacement); err != nil {
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
