package hosttest

import (
	"io"
	"net"
	"net/http"
	"testing"
)

// Proxy is an HTTP proxy on the guests' network that knows one name.
type Proxy struct{ URL string }

// NewProxy starts a proxy that connects whoever asks for the name and port to
// the address, and refuses everything else.
func (w *World) NewProxy(t *testing.T, name, addr string) *Proxy {
	t.Helper()
	p := &Proxy{}
	p.URL = w.Serve(t, http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodConnect || r.Host != name {
			http.Error(rw, "no way to "+r.Host, http.StatusForbidden)
			return
		}
		p.connect(rw, addr)
	}))
	return p
}

func (p *Proxy) connect(rw http.ResponseWriter, addr string) {
	far, err := net.Dial("tcp", addr)
	if err != nil {
		http.Error(rw, err.Error(), http.StatusBadGateway)
		return
	}
	defer far.Close()
	near, buffered, err := http.NewResponseController(rw).Hijack()
	if err != nil {
		http.Error(rw, err.Error(), http.StatusInternalServerError)
		return
	}
	defer near.Close()
	if _, err := io.WriteString(near, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_, _ = io.Copy(far, buffered) // ends with either side
		far.Close()
	}()
	_, _ = io.Copy(near, far) // ends with either side
	near.Close()
	<-done
}
