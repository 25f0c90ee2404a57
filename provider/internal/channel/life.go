package channel

import (
	"net/http"

	"bigfleet-providers/shared/command"
	"bigfleet-providers/shared/token"
)

// Life is one life of a machine's id: a new host in each. A request is of the life
// whose token it carries. That is looked at when it comes, and again whenever it
// is to change what is held for the machine or to be given something: while a
// request waits, its life may end and the next begin.
type Life struct {
	// ID is what the life's token derives from; "" when the machine has no host that
	// may ask for anything.
	ID string
	// Plain has the token that is the same in all lives accepted beside it.
	Plain bool
}

// noLife stands in for the life that is not there, so that a request for a machine
// without one costs what any other does.
const noLife = "00000000-0000-0000-0000-000000000000"

// verify finds out under which secret, and as which of the machine's tokens, the
// presented one is right. All are tried, whichever fits: equal work.
func (s *Server) verify(r *request, life Life, presented string) bool {
	r.life = life.ID
	of := life.ID
	if of == "" {
		of = noLife
	}
	fits := func(secret token.Secret) (bound, plain bool) {
		if len(secret.Bytes()) == 0 {
			return false, false
		}
		bound = token.Verify(secret, r.machine, of, presented) == nil
		plain = token.VerifyPlain(secret, r.machine, presented) == nil
		return bound, plain && life.Plain
	}
	bound, plain := fits(s.secret)
	boundBefore, plainBefore := fits(s.previous)
	r.plain = plain || plainBefore
	r.previous = (boundBefore || plainBefore) && !bound && !plain
	return life.ID != "" && (bound || plain || boundBefore || plainBefore)
}

// renewed is the host's token under the present secret: of the same life, and bound
// to it if the one that it has is.
func (s *Server) renewed(r *request) string {
	if r.plain {
		return token.DerivePlain(s.secret, r.machine)
	}
	return token.Derive(s.secret, r.machine, r.life)
}

// tokens are all that the request's host may have, to be cut out of its words.
func (s *Server) tokens(r *request) []string {
	var all []string
	for _, secret := range []token.Secret{s.secret, s.previous} {
		if len(secret.Bytes()) > 0 {
			all = append(all, token.Derive(secret, r.machine, r.life), token.DerivePlain(secret, r.machine))
		}
	}
	return all
}

// isOver says whether the request's life has ended since it was authorised.
func (s *Server) isOver(r *request) bool {
	life, _ := s.life(r.machine)
	return life.ID != r.life
}

// refuseFormer answers a request whose life has ended since it was authorised.
func (s *Server) refuseFormer(w http.ResponseWriter, r *request) {
	life, known := s.life(r.machine)
	w.Header().Del(command.HeaderToken)
	s.unauthorised(w, r.Request, r.machine, true, known, life)
}
