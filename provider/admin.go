package provider

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"bigfleet-providers/provider/internal/channel"
	"bigfleet-providers/provider/internal/store"
	"bigfleet-providers/provider/internal/telemetry"
)

// maxSocketPath is what fits into sockaddr_un.sun_path with its NUL, unix(7).
const maxSocketPath = 107

// listenAdmin opens the admin socket, mode 0600, and makes its folder if only that
// is missing: a pod's volumes belong to root, and what is made in one does not.
// A socket that a killed provider left behind is replaced; one that is served is
// not.
func listenAdmin(ctx context.Context, path string) (net.Listener, error) {
	fail := func(err error) (net.Listener, error) { return nil, fmt.Errorf("--admin-socket %s: %w", path, err) }
	if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return fail(err)
	}
	if err := ownFolder(filepath.Dir(path)); err != nil {
		return fail(err)
	}
	switch info, err := os.Lstat(path); {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return fail(err)
	case info.Mode().Type() != fs.ModeSocket:
		return fail(errNoSocket)
	default:
		if err := removeStale(ctx, path); err != nil {
			return fail(err)
		}
	}
	ln, err := new(net.ListenConfig).Listen(ctx, "unix", path)
	if err != nil {
		return fail(err)
	}
	// Until here the umask ruled; whoever came in so is judged by its uid.
	if err := os.Chmod(path, 0o600); err != nil {
		return fail(errors.Join(err, ln.Close()))
	}
	return ln, nil
}

var errNoSocket = errors.New("exists and is not a socket; remove it or name another path")

// ownFolder refuses a folder in which somebody else could replace the socket.
func ownFolder(dir string) error {
	info, err := os.Stat(dir)
	if err != nil {
		return err
	}
	st, ok := info.Sys().(*syscall.Stat_t)
	if !ok || int(st.Uid) != os.Geteuid() || info.Mode().Perm()&0o022 != 0 {
		return fmt.Errorf("its folder must belong to the provider's user (uid %d) and be writable by it alone, and has mode %s", os.Geteuid(), info.Mode())
	}
	return nil
}

func removeStale(ctx context.Context, path string) error {
	d := net.Dialer{Timeout: time.Second}
	conn, err := d.DialContext(ctx, "unix", path)
	switch {
	case err == nil:
		return errors.Join(errors.New("another process serves it; stop that one or name another path"), conn.Close())
	case errors.Is(err, syscall.ECONNREFUSED):
		return os.Remove(path)
	default:
		return err
	}
}

// peerKey is where a connection's context has the uid of its other end.
type peerKey struct{}

// serveAdmin serves the admin socket until ctx ends, to root and to the
// provider's own user: copies of the state file, which hosts use the machines'
// tokens, the operations under way, and what is kept and can be released. ch is nil
// where there is no channel, and no token.
func serveAdmin(ctx context.Context, ln net.Listener, st *store.Store, ch *channel.Server, kept *keptHandlers, log *slog.Logger) error {
	mux := http.NewServeMux()
	if ch != nil {
		mux.Handle("GET /hosts", hostsHandler(ch))
		mux.Handle("POST /hosts/{machine}/unlock", unlockHandler(st, ch, log))
	}
	mux.Handle("GET /operations", operationsHandler(st))
	kept.register(mux)
	mux.Handle("GET /state/backup", &backupHandler{store: st, log: log})
	srv := newHTTPServer(ownPeers(mux), log)
	srv.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		uid, err := peerOf(c)
		if err != nil {
			log.Warn("the other end of an admin connection cannot be told", telemetry.KeyError, err.Error())
			return ctx
		}
		return context.WithValue(ctx, peerKey{}, uid)
	}
	return serveServer(ctx, ln, srv)
}

// ownPeers refuses every peer but root and the provider's own user. The socket's
// mode does so too; but a mode is easily changed by those who tidy up.
func ownPeers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		uid, ok := r.Context().Value(peerKey{}).(uint32)
		if !ok || uid != 0 && int(uid) != os.Geteuid() {
			http.Error(w, "only root and the provider's own user may use this socket", http.StatusForbidden)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// peerOf asks the kernel who connected.
func peerOf(c net.Conn) (uint32, error) {
	u, ok := c.(*net.UnixConn)
	if !ok {
		return 0, fmt.Errorf("%T is no unix connection", c)
	}
	raw, err := u.SyscallConn()
	if err != nil {
		return 0, err
	}
	var cred *unix.Ucred
	var credErr error
	err = raw.Control(func(fd uintptr) { cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) })
	if err := errors.Join(err, credErr); err != nil {
		return 0, err
	}
	return cred.Uid, nil
}

// backupHandler streams a consistent copy of the state file. One at a time:
// each takes the file's size of disk space.
type backupHandler struct {
	store *store.Store
	log   *slog.Logger
	busy  sync.Mutex
}

func (h *backupHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if !h.busy.TryLock() {
		w.Header().Set("Retry-After", "5")
		http.Error(w, "another backup is being made; try again when it is done", http.StatusServiceUnavailable)
		return
	}
	defer h.busy.Unlock()
	began := time.Now()
	size, err := h.send(w)
	if err != nil {
		h.log.Error("a backup of the state file failed", telemetry.KeyError, err.Error())
		return
	}
	h.log.Info("a backup of the state file was handed out", "bytes", size, "took", time.Since(began).Round(time.Millisecond), "uid", r.Context().Value(peerKey{}))
}

func (h *backupHandler) send(w http.ResponseWriter) (int64, error) {
	from, err := h.store.Copy()
	if err != nil {
		http.Error(w, "the state file cannot be copied: "+err.Error(), http.StatusInternalServerError)
		return 0, err
	}
	defer from.Close()
	info, err := from.Stat()
	if err != nil {
		http.Error(w, "the copy of the state file cannot be read: "+err.Error(), http.StatusInternalServerError)
		return 0, err
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	// With its length known, the other end notices a stream that breaks off.
	w.Header().Set("Content-Length", strconv.FormatInt(info.Size(), 10))
	return io.Copy(w, from)
}
