// Package scaleway holds what the Scaleway adapters share: the client, the one
// table from the vendor's errors to those of package cloud, how the objects we
// make are named and tagged, and so which of them are ours.
package scaleway

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/scaleway/scaleway-sdk-go/logger"
	"github.com/scaleway/scaleway-sdk-go/scw"
)

// DefaultAPIURL is Scaleway's public API.
const DefaultAPIURL = "https://api.scaleway.com"

// ClientConfig says how to reach the API.
type ClientConfig struct {
	AccessKey string
	SecretKey string
	ProjectID string
	Zone      string
	APIURL    string       // SCW_API_URL; "" means DefaultAPIURL
	Version   string       // ours, for the User-Agent
	HTTP      *http.Client // its Transport and Timeout are used; nil means a 30 s timeout
	Log       *slog.Logger
}

// NewClient builds the SDK's client. It makes no call and reads nothing from
// the environment but whether SCW_DEBUG is set, which it refuses to honour.
func NewClient(cfg ClientConfig) (*scw.Client, error) {
	silenceSDK()
	if os.Getenv(logger.DebugEnv) != "" && cfg.Log != nil {
		cfg.Log.Warn("SCW_DEBUG is ignored: it would print user data and secrets")
	}
	url := cfg.APIURL
	if url == "" {
		url = DefaultAPIURL
	}
	url = strings.TrimRight(url, "/") // the SDK refuses a trailing slash

	var faults []error
	if cfg.AccessKey == "" {
		faults = append(faults, errors.New("access key: missing; set --access-key or SCW_ACCESS_KEY"))
	}
	if cfg.SecretKey == "" {
		faults = append(faults, errors.New("secret key: missing; set --secret-key or SCW_SECRET_KEY"))
	}
	if cfg.ProjectID == "" {
		faults = append(faults, errors.New("project id: missing; set --project-id or SCW_DEFAULT_PROJECT_ID"))
	}
	zone, err := parseZone(cfg.Zone)
	if err := errors.Join(append(faults, err)...); err != nil {
		return nil, err
	}

	client, err := scw.NewClient(
		scw.WithAuth(cfg.AccessKey, cfg.SecretKey),
		scw.WithDefaultProjectID(cfg.ProjectID),
		scw.WithDefaultZone(zone),
		scw.WithAPIURL(url),
		scw.WithUserAgent(userAgent(cfg.Version)),
		scw.WithHTTPClient(httpClient(cfg.HTTP)),
	)
	if err != nil {
		return nil, fmt.Errorf("scaleway client: %w", scrub(err, cfg.SecretKey))
	}
	return client, nil
}

func userAgent(version string) string {
	if version == "" {
		version = "dev"
	}
	return "bigfleet-scaleway/" + version
}

// httpClient copies the client, so that ours never follows a redirect: Go would
// carry the secret key's header along to wherever it points. It also keeps from
// the SDK what it could not read.
func httpClient(given *http.Client) *http.Client {
	c := http.Client{Timeout: 30 * time.Second}
	if given != nil {
		c = *given
	}
	if c.Transport == nil {
		c.Transport = http.DefaultTransport
	}
	c.Transport = answers{c.Transport}
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &c
}

// scrub keeps a secret that the SDK quotes in a format complaint out of logs.
func scrub(err error, secret string) error {
	if secret == "" || !strings.Contains(err.Error(), secret) {
		return err
	}
	return errors.New(strings.ReplaceAll(err.Error(), secret, "<secret key>"))
}

// silenceSDK replaces the SDK's process-wide logger. At debug level that logger
// dumps whole requests, with user data and keys, and SCW_DEBUG alone turns it
// on. The SDK reads the variable without a lock, hence once and before the
// first client.
var silenceSDK = sync.OnceFunc(func() { logger.SetLogger(silent{}) })

// silent logs nothing: whatever matters comes back as an error.
type silent struct{}

// Debugf implements logger.Logger.
func (silent) Debugf(string, ...any) {}

// Infof implements logger.Logger.
func (silent) Infof(string, ...any) {}

// Warningf implements logger.Logger.
func (silent) Warningf(string, ...any) {}

// Errorf implements logger.Logger.
func (silent) Errorf(string, ...any) {}

// ShouldLog implements logger.Logger.
func (silent) ShouldLog(logger.LogLevel) bool { return false }

// SRNGuard makes the SDK's list calls safe to run at the same time. Since v1.38
// they read the API's metadata into an unsynchronised cache in the client.
// Its zero value is ready; use one guard a client.
type SRNGuard struct {
	mu    sync.Mutex
	ready bool
}

// Do runs an SDK call that may fill the cache. Until the cache is known to be
// filled, calls run one at a time.
func (g *SRNGuard) Do(client *scw.Client, call func() error) error {
	g.mu.Lock()
	if !g.ready {
		if _, err := client.GetAPIMetadata(); err != nil {
			// The SDK goes without it, so do we; but it will try to fill the cache.
			defer g.mu.Unlock()
			return call()
		}
		g.ready = true
	}
	g.mu.Unlock()
	return call()
}

// Read makes a call of the SDK under its client's guard and explains why it
// failed.
func Read[T any](g *SRNGuard, client *scw.Client, call func() (T, error)) (T, error) {
	var answer T
	err := g.Do(client, func() (err error) {
		answer, err = call()
		return err
	})
	return answer, Explain(err)
}
