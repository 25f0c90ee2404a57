package telemetry

import (
	"strings"
	"sync"
)

// Limits of the route label. A provider uses a few dozen routes; more means
// that names of objects got through the templating.
const (
	maxRoutes        = 100
	maxRouteSegments = 16
	otherRoute       = "other"
)

// routes turns paths of an API into templates of which it hands out at most
// maxRoutes, so that the label stays small whatever the paths are.
type routes struct {
	mu   sync.Mutex
	seen map[string]bool
}

func newRoutes() *routes { return &routes{seen: map[string]bool{}} }

func (r *routes) of(path string) string {
	route := template(path)
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.seen[route] {
		if len(r.seen) >= maxRoutes {
			return otherRoute
		}
		r.seen[route] = true
	}
	return route
}

// template replaces every segment of a path that is not a word of the API, such
// as an id or a zone, by "{id}".
func template(path string) string {
	segments := strings.Split(path, "/")
	if len(segments) > maxRouteSegments {
		return otherRoute
	}
	for i, s := range segments {
		if s != "" && !isWord(s) {
			segments[i] = "{id}"
		}
	}
	return strings.Join(segments, "/")
}

// isWord tells words ("servers", "user_data", "virtualMachines",
// "Microsoft.Compute") and versions ("v1", "v1alpha1") from ids, which have
// digits.
func isWord(s string) bool {
	if len(s) > 32 {
		return false
	}
	version := len(s) > 1 && len(s) <= 10 && s[0] == 'v' && s[1] >= '0' && s[1] <= '9'
	for _, c := range []byte(s) {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '_', c == '-', c == '.':
		case c >= '0' && c <= '9' && version:
		default:
			return false
		}
	}
	return true
}
