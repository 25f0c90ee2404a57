package operator

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"syscall"
)

// overSocket asks the running provider on its admin socket, and has use read the
// answer's body if it did what it was asked.
func overSocket(ctx context.Context, socket, method, path string, use func(io.Reader) error) error {
	transport := &http.Transport{DisableKeepAlives: true, DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "unix", socket)
	}}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, method, "http://provider"+path, http.NoBody)
	if err != nil {
		return err
	}
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return socketError(socket, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		text, err := io.ReadAll(io.LimitReader(resp.Body, 4096))
		return errors.Join(fmt.Errorf("the provider on %s refuses (%s): %s", socket, resp.Status, printable(string(text))), err)
	}
	return use(resp.Body)
}

func socketError(socket string, err error) error {
	advice := ""
	switch {
	case errors.Is(err, syscall.ENOENT), errors.Is(err, syscall.ECONNREFUSED):
		advice = "; is the provider running, with --admin-socket " + socket + "?"
	case errors.Is(err, syscall.EACCES):
		advice = "; only root and the provider's own user may use it"
	}
	if op, ok := errors.AsType[*net.OpError](err); ok {
		err = op.Err // without the URL that HTTP needs and nobody typed
	}
	return fmt.Errorf("--socket %s: %w%s", socket, err, advice)
}
