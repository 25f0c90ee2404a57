package blob

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"gopkg.in/yaml.v3"

	"bigfleet-providers/shared/endpoint"
)

// Node is what a join gives to the node, whatever the blob says.
type Node struct {
	Name       string
	ProviderID string
}

// joinKind is kubeadm's, see k8s.io/kubernetes/cmd/kubeadm/app/apis/kubeadm.
const joinKind = "JoinConfiguration"

// Join reads a blob for kubeadm, a JoinConfiguration in YAML or the line that
// "kubeadm token create --print-join-command" prints, and returns the
// JoinConfiguration for the node. version is the apiVersion for one that is made
// of a line.
func Join(body []byte, node Node, version string) ([]byte, error) {
	body, err := Text(body)
	if err != nil {
		return nil, err
	}
	docs, err := documents(body)
	var join *yaml.Node
	switch {
	case err == nil && hasKind(docs):
		if join, err = joinOf(docs); err != nil {
			return nil, err
		}
	case err != nil && kindLine.Match(body):
		return nil, fmt.Errorf("the blob's YAML: %w", err)
	default:
		if join, err = joinFromLine(string(body), version); err != nil {
			return nil, err
		}
		docs = []*yaml.Node{join}
	}
	if err := register(join, node); err != nil {
		return nil, err
	}
	return render(docs)
}

var kindLine = regexp.MustCompile(`(?m)^[\s{]*["']?kind["']?\s*:`)

func hasKind(docs []*yaml.Node) bool {
	for _, doc := range docs {
		if get(doc, "kind") != nil {
			return true
		}
	}
	return false
}

// joinOf returns the JoinConfiguration among documents. kubeadm says itself what
// others it passes over.
func joinOf(docs []*yaml.Node) (*yaml.Node, error) {
	var join *yaml.Node
	for _, doc := range docs {
		if kind := get(doc, "kind"); kind == nil || kind.Value != joinKind {
			continue
		}
		if join != nil {
			return nil, errors.New("the blob has two JoinConfigurations")
		}
		join = doc
	}
	if join == nil {
		return nil, errors.New("the blob is YAML, but not a kubeadm JoinConfiguration")
	}
	if v := get(join, "apiVersion"); v == nil || !strings.HasPrefix(v.Value, "kubeadm.k8s.io/") {
		return nil, errors.New("the blob's JoinConfiguration has no apiVersion of kubeadm.k8s.io")
	}
	return join, nil
}

// mapArgs are the versions in which kubeletExtraArgs is a mapping; later it is a
// list of names and values.
var mapArgs = regexp.MustCompile(`/v1(alpha[0-9]+|beta[123])$`)

const (
	providerIDArg = "provider-id"
	// hostnameArg names the node in the place of nodeRegistration.name.
	hostnameArg = "hostname-override"
)

// register sets the node's name and provider id. The id goes by kubeadm, which
// writes it beside the kubelet's other arguments: whatever the operator gives to
// the kubelet, in files of any form, stays as it is.
func register(join *yaml.Node, node Node) error {
	registration := get(join, "nodeRegistration")
	if registration == nil || registration.ShortTag() == "!!null" {
		registration = mapping()
		set(join, "nodeRegistration", registration)
	}
	if registration.Kind != yaml.MappingNode {
		return errors.New("the blob's JoinConfiguration: nodeRegistration: want a mapping")
	}
	set(registration, "name", quoted(node.Name))
	args := get(registration, "kubeletExtraArgs")
	if args == nil || args.ShortTag() == "!!null" {
		args = sequence()
		if mapArgs.MatchString(get(join, "apiVersion").Value) {
			args = mapping()
		}
		set(registration, "kubeletExtraArgs", args)
	}
	switch args.Kind {
	case yaml.MappingNode:
		set(args, providerIDArg, quoted(node.ProviderID))
		if get(args, hostnameArg) != nil {
			set(args, hostnameArg, quoted(node.Name))
		}
	case yaml.SequenceNode:
		var others []*yaml.Node
		for _, arg := range args.Content {
			if name := get(resolve(arg), "name"); name == nil || name.Value != providerIDArg && name.Value != hostnameArg {
				others = append(others, arg)
			}
		}
		args.Content = slices.Concat(others, []*yaml.Node{mapping(field{"name", quoted(providerIDArg)}, field{"value", quoted(node.ProviderID)})})
	default:
		return errors.New("the blob's JoinConfiguration: nodeRegistration.kubeletExtraArgs: want a list or a mapping")
	}
	return nil
}

var (
	// joinStart is where a join line begins, behind a prompt, sudo and a path.
	joinStart = regexp.MustCompile(`^\s*(?:[^#'"\\=;|&]*[$#%]\s+)?(?:sudo\s+(?:-[EHn]+\s+)*)?(?:/[A-Za-z0-9._/-]*/)?kubeadm\s+join(?:\s|$)`)
	// message is what programs print above it: lines of klog and warnings.
	message = regexp.MustCompile(`^\s*(?:[IWEF][0-9]{4} .*\]|(?i:warning): |\[(?:WARNING|preflight|config|upgrade)[^\]]*\] )`)
	comment = regexp.MustCompile(`^\s*(?:#.*)?$`)
	// continued is a line that goes on in the next one, also with blanks behind the
	// backslash, as pasting leaves them.
	continued = regexp.MustCompile(`\\[ \t]*$`)
)

// joinArguments returns the words of the one join line in text, from behind "join".
func joinArguments(text string) ([]string, error) {
	var found []string
	lines := strings.Split(text, "\n")
	for i := 0; i < len(lines); i++ {
		at, line := i+1, lines[i]
		switch {
		case comment.MatchString(line), message.MatchString(line):
			continue
		case !joinStart.MatchString(line):
			return nil, fmt.Errorf("the blob is neither a kubeadm JoinConfiguration nor a kubeadm join line: see line %d", at)
		case found != nil:
			return nil, fmt.Errorf("the blob has two kubeadm join lines, see line %d", at)
		}
		for continued.MatchString(line) && i+1 < len(lines) {
			i++
			// A terminal shows "> " in front of it.
			line = continued.ReplaceAllString(line, " ") + strings.TrimPrefix(lines[i], "> ")
		}
		line = continued.ReplaceAllString(line, "")
		args, err := words(line[len(joinStart.FindString(line)):])
		if err != nil {
			return nil, fmt.Errorf("the blob's join line has %w", err)
		}
		found = append([]string{}, args...)
	}
	if found == nil {
		return nil, errors.New("the blob is neither a kubeadm JoinConfiguration nor a kubeadm join line")
	}
	return found, nil
}

// joinOptions is what a join line may say.
type joinOptions struct {
	endpoint, token, discoveryToken, tlsToken, socket string
	hashes, ignored                                   []string
	unsafe                                            bool
}

// joinFromLine makes the JoinConfiguration that a join line means: on a command
// line everybody on the host could read the token.
func joinFromLine(text, version string) (*yaml.Node, error) {
	args, err := joinArguments(text)
	if err != nil {
		return nil, err
	}
	var o joinOptions
	if err := o.parse(args); err != nil {
		return nil, err
	}
	if err := o.complete(); err != nil {
		return nil, err
	}
	if version == "" {
		return nil, errors.New("kubeadm config print join-defaults names no apiVersion")
	}
	bootstrap := mapping(field{"apiServerEndpoint", quoted(o.endpoint)}, field{"token", quoted(o.discoveryToken)})
	if len(o.hashes) > 0 {
		set(bootstrap, "caCertHashes", list(o.hashes))
	}
	if o.unsafe {
		set(bootstrap, "unsafeSkipCAVerification", &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!bool", Value: "true"})
	}
	discovery := mapping(field{"bootstrapToken", bootstrap})
	if o.tlsToken != o.discoveryToken {
		set(discovery, "tlsBootstrapToken", quoted(o.tlsToken))
	}
	join := mapping(field{"apiVersion", quoted(version)}, field{"kind", quoted(joinKind)}, field{"discovery", discovery})
	if o.socket+strings.Join(o.ignored, "") != "" {
		registration := mapping()
		if o.socket != "" {
			set(registration, "criSocket", quoted(o.socket))
		}
		if len(o.ignored) > 0 {
			set(registration, "ignorePreflightErrors", list(o.ignored))
		}
		set(join, "nodeRegistration", registration)
	}
	return join, nil
}

func list(items []string) *yaml.Node {
	n := sequence()
	for _, item := range items {
		n.Content = append(n.Content, quoted(item))
	}
	return n
}

// joinFlags are the options with a value that a join line may have. The node's
// name is the machine's, whatever the line says.
var joinFlags = []string{
	"--token", "--discovery-token", "--tls-bootstrap-token", "--discovery-token-ca-cert-hash", "--cri-socket", "--ignore-preflight-errors", "--node-name",
}

func (o *joinOptions) parse(args []string) error {
	seen := map[string]bool{}
	for len(args) > 0 {
		option := args[0]
		args = args[1:]
		if !strings.HasPrefix(option, "-") {
			if o.endpoint != "" {
				return errors.New("the blob's join line names two API servers")
			}
			o.endpoint = option
			continue
		}
		name, value, has := strings.Cut(option, "=")
		if name == "--discovery-token-unsafe-skip-ca-verification" {
			if has && value != "true" && value != "false" {
				return fmt.Errorf("the blob's join line has a value for %s that is neither true nor false", name)
			}
			o.unsafe = !has || value == "true"
			continue
		}
		if !slices.Contains(joinFlags, name) {
			return fmt.Errorf("the blob's join line has an option that this hook does not know: %s; use a JoinConfiguration", name)
		}
		if !has {
			if len(args) == 0 {
				return fmt.Errorf("the blob's join line has no value for %s", name)
			}
			value, args = args[0], args[1:]
		}
		if value == "" {
			return fmt.Errorf("the blob's join line has no value for %s", name)
		}
		if seen[name] && name != "--discovery-token-ca-cert-hash" && name != "--ignore-preflight-errors" {
			return fmt.Errorf("the blob's join line has %s twice", name)
		}
		seen[name] = true
		switch name {
		case "--token":
			o.token = value
		case "--discovery-token":
			o.discoveryToken = value
		case "--tls-bootstrap-token":
			o.tlsToken = value
		case "--discovery-token-ca-cert-hash":
			o.hashes = append(o.hashes, strings.Split(value, ",")...)
		case "--cri-socket":
			o.socket = value
		case "--ignore-preflight-errors":
			o.ignored = append(o.ignored, strings.Split(value, ",")...)
		}
	}
	return nil
}

// complete judges what a join line says, and fills in what it leaves to
// kubeadm's defaults.
func (o *joinOptions) complete() error {
	var faults []error
	if err := endpoint.Address(o.endpoint); err != nil {
		faults = append(faults, errors.New("the blob's join line names no API server as HOST:PORT, with a port from 1 to 65535"))
	}
	if o.discoveryToken == "" {
		o.discoveryToken = o.token
	}
	if o.tlsToken == "" {
		o.tlsToken = o.token
	}
	if o.discoveryToken == "" || o.tlsToken == "" {
		faults = append(faults, errors.New("the blob's join line has no --token"))
	}
	if len(o.hashes) == 0 && !o.unsafe {
		faults = append(faults, errors.New("the blob's join line has no --discovery-token-ca-cert-hash"))
	}
	return errors.Join(faults...)
}
