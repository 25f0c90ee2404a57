package channel

import (
	"errors"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"time"

	"bigfleet-providers/provider/internal/telemetry"
	"bigfleet-providers/shared/command"
)

// packageTimeout bounds the whole fetch of a package, however steadily it
// trickles.
const packageTimeout = 15 * time.Minute

func isPackagePath(path string) bool { return strings.HasPrefix(path, command.PathPackages+"/") }

// servePackage sends one file of the package directory. There are no listings,
// no sub-directories and no hidden files: a mounted volume keeps its own there.
func (s *Server) servePackage(w http.ResponseWriter, r *request) {
	if r.Method != http.MethodGet {
		s.refuseMethod(w, http.MethodGet)
		return
	}
	if err := checkQuery(r, command.ParamMachineID); err != nil {
		s.metrics.packages.WithLabelValues(resultInvalid).Inc()
		s.refuse(w, http.StatusBadRequest, err.Error())
		return
	}
	name := strings.TrimPrefix(r.URL.Path, command.PathPackages+"/")
	file, info, err := s.openPackage(name)
	if err != nil {
		if !errors.Is(err, fs.ErrNotExist) {
			s.log.ErrorContext(r.Context(), "could not open an agent package", telemetry.KeyFile, name, telemetry.KeyError, err.Error())
		}
		s.metrics.packages.WithLabelValues(resultNotFound).Inc()
		s.refuse(w, http.StatusNotFound, "no such agent package; what the provider's package directory holds can be fetched")
		return
	}
	defer file.Close()
	s.metrics.packages.WithLabelValues(resultServed).Inc()
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	slow := &steadyWriter{ResponseWriter: w, s: s, until: time.Now().Add(packageTimeout)}
	http.ServeContent(slow, r.Request, name, info.ModTime(), file)
}

// openPackage opens a regular file of the package directory.
func (s *Server) openPackage(name string) (io.ReadSeekCloser, fs.FileInfo, error) {
	if s.packages == nil || strings.Contains(name, "/") || strings.HasPrefix(name, ".") || !fs.ValidPath(name) {
		return nil, nil, fs.ErrNotExist
	}
	file, err := s.packages.Open(name)
	if err != nil {
		return nil, nil, err
	}
	info, err := file.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = fs.ErrNotExist
	}
	seeker, ok := file.(io.ReadSeekCloser)
	if err == nil && !ok {
		err = errors.New("the package file system cannot seek")
	}
	if err != nil {
		return nil, nil, errors.Join(err, file.Close())
	}
	return seeker, info, nil
}

// steadyWriter cuts a host off that stops reading in the middle of a package.
// It hides the ReaderFrom of net/http on purpose: that would send the whole
// file under one deadline.
type steadyWriter struct {
	http.ResponseWriter
	s     *Server
	until time.Time
}

func (w *steadyWriter) Write(p []byte) (int, error) {
	if !time.Now().Before(w.until) {
		return 0, http.ErrHandlerTimeout
	}
	w.s.extendWrite(w.ResponseWriter)
	return w.ResponseWriter.Write(p)
}

// WriteHeader puts back what http.ServeContent strips from its refusals.
func (w *steadyWriter) WriteHeader(status int) {
	w.Header().Set("Cache-Control", "no-store")
	w.ResponseWriter.WriteHeader(status)
}
