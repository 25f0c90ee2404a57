// Package node is what the shipped hooks need of a cluster: whether this host's
// node is ready, to empty it, and to leave. It uses the kubelet's own
// credentials and no kubectl, which a node need not have.
//
// A kubelet may read its own Node and the pods bound to it, evict and delete
// those, and mark its own Node; see the Node authorizer and the NodeRestriction
// admission plugin of Kubernetes. It may not delete its own Node unless the
// cluster's administrator allows that, see Client.Leave.
package node

import (
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"gopkg.in/yaml.v3"

	"bigfleet-providers/shared/pemfile"
)

const requestTimeout = 20 * time.Second

// Client speaks to one cluster's API server about one node.
type Client struct {
	server *url.URL
	http   *http.Client
	name   string
	wanted string        // the name that the node is to have; "" for any
	pause  time.Duration // between two rounds of evictions
}

// kubeconfig has the parts of a kubeconfig file that kubelets use, see
// k8s.io/client-go/tools/clientcmd/api/v1.
type kubeconfig struct {
	CurrentContext string `yaml:"current-context"`
	Contexts       []struct {
		Name    string `yaml:"name"`
		Context struct {
			Cluster string `yaml:"cluster"`
			User    string `yaml:"user"`
		} `yaml:"context"`
	} `yaml:"contexts"`
	Clusters []struct {
		Name    string  `yaml:"name"`
		Cluster cluster `yaml:"cluster"`
	} `yaml:"clusters"`
	Users []struct {
		Name string `yaml:"name"`
		User user   `yaml:"user"`
	} `yaml:"users"`
}

type cluster struct {
	Server        string `yaml:"server"`
	TLSServerName string `yaml:"tls-server-name"`
	CAFile        string `yaml:"certificate-authority"`
	CAData        string `yaml:"certificate-authority-data"`
}

type user struct {
	CertFile string `yaml:"client-certificate"`
	CertData string `yaml:"client-certificate-data"`
	KeyFile  string `yaml:"client-key"`
	KeyData  string `yaml:"client-key-data"`
}

// userPrefix is before the node's name in the user that a kubelet is to its
// cluster, see the Node authorizer of Kubernetes.
const userPrefix = "system:node:"

// New returns a client with the credentials in the kubeconfig file at path, for
// the node that they are for. name is the one that the node is to have, "" for
// any; where the credentials do not say which node they are for, it is taken for
// it. Close it after use.
func New(path, name string) (*Client, error) {
	body, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("the kubelet's credentials: %w", err)
	}
	c, err := parse(body, filepath.Dir(path))
	if err != nil {
		return nil, fmt.Errorf("the kubelet's credentials in %s: %w", path, err)
	}
	c.wanted = name
	if c.name == "" {
		c.name = name
	}
	if c.name == "" {
		return nil, fmt.Errorf("the kubelet's credentials in %s do not say which node they are for, and BIGFLEET_NODE_NAME is empty", path)
	}
	c.pause = evictPause
	return c, nil
}

// Close gives up idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

func parse(body []byte, dir string) (*Client, error) {
	var conf kubeconfig
	if err := yaml.Unmarshal(body, &conf); err != nil {
		return nil, errors.New("not a kubeconfig in YAML") // what stands there may be a key
	}
	cl, us, err := conf.current()
	if err != nil {
		return nil, err
	}
	server, err := url.Parse(cl.Server)
	if err != nil || server.Scheme != "https" || server.Host == "" {
		return nil, errors.New("the cluster's server is not https://host[:port]")
	}
	ca, caErr := material("certificate-authority", cl.CAFile, cl.CAData, dir)
	cert, certErr := material("client-certificate", us.CertFile, us.CertData, dir)
	key, keyErr := material("client-key", us.KeyFile, us.KeyData, dir)
	if err := errors.Join(caErr, certErr, keyErr); err != nil {
		return nil, err
	}
	roots, err := pemfile.Pool(ca)
	if err != nil {
		return nil, fmt.Errorf("certificate-authority: %w", err)
	}
	pair, err := pemfile.KeyPair("client-certificate", "client-key", cert, key)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		Proxy: http.ProxyFromEnvironment, ForceAttemptHTTP2: true,
		TLSClientConfig: &tls.Config{
			RootCAs: roots, Certificates: []tls.Certificate{pair}, ServerName: cl.TLSServerName, MinVersion: tls.VersionTLS12,
		},
	}
	name := ""
	if user, is := strings.CutPrefix(pair.Leaf.Subject.CommonName, userPrefix); is {
		name = user
	}
	return &Client{name: name, server: server, http: &http.Client{
		Transport: transport, Timeout: requestTimeout,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// current returns the cluster and the user of the current context.
func (k *kubeconfig) current() (cluster, user, error) {
	for _, ctx := range k.Contexts {
		if ctx.Name != k.CurrentContext {
			continue
		}
		for _, cl := range k.Clusters {
			for _, us := range k.Users {
				if cl.Name == ctx.Context.Cluster && us.Name == ctx.Context.User {
					return cl.Cluster, us.User, nil
				}
			}
		}
	}
	return cluster{}, user{}, fmt.Errorf("the current context %q has no cluster and user", k.CurrentContext)
}

// material is what field has in the file or in base64.
func material(field, file, data, dir string) ([]byte, error) {
	switch {
	case data != "":
		body, err := base64.StdEncoding.DecodeString(data)
		if err != nil {
			return nil, fmt.Errorf("%s-data: not base64", field)
		}
		return body, nil
	case file == "":
		return nil, fmt.Errorf("%s: missing", field)
	case !filepath.IsAbs(file):
		file = filepath.Join(dir, file)
	}
	body, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", field, err)
	}
	return body, nil
}
