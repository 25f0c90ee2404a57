package e2e

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	gotoken "go/token"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/credentials"

	pb "bigfleet-providers/proto/bigfleet/v1alpha1"
)

// promise is a statement that the security and credentials pages of the Scaleway
// provider make of its behaviour, in our words, and what proves it: a package
// and a test in it.
type promise struct {
	says   string
	proofs []string
	// instead is how we differ from the page, and where a page of ours says so.
	instead, page string
}

// promises go through the two pages from the top. Advice to operators is left
// out where no program can follow it.
var promises = []promise{
	// Security: transport.
	{says: "health and reflection share the port of the service, :9000 by default", proofs: []string{"provider/e2e TestHealthAndReflection", "provider/e2e TestDefaults"}},
	{says: "the mode is logged at start as security: insecure, TLS or mTLS", proofs: []string{"provider/e2e TestTransportModes"}},
	{says: "with TLS alone clients are not authenticated", proofs: []string{"provider/e2e TestTransportModes"}},
	{says: "with mTLS a client needs a certificate that chains to the CA", proofs: []string{"provider/e2e TestTransportModes", "provider/e2e TestChain"}},
	{says: "certificate or key alone is an error at start", proofs: []string{"provider/e2e TestTransportFaultsEndTheStart"}},
	{says: "a client CA without a pair is refused", proofs: []string{"provider/e2e TestTransportFaultsEndTheStart"}},
	{says: "a missing or untrusted client certificate is refused in the handshake, before any handler", proofs: []string{"provider/e2e TestRefusedBeforeAnyHandler"}},
	{says: "TLS 1.3 and nothing older", proofs: []string{"provider/e2e TestTransportModes", "provider/internal/channel TestOldTLSIsRefused", "agent TestOldTLSIsRefused"}},
	{says: "a bad pair or CA bundle ends the start, so nothing comes up insecure", proofs: []string{"provider/e2e TestTransportFaultsEndTheStart"}},
	{
		says: "pair and CA are read once, at start", proofs: []string{"provider/e2e TestTransportModes", "provider/internal/certificates TestNothingIsFollowedUnasked", "provider/e2e TestReload"},
		instead: "so it is by default; --tls-reload follows the files", page: "docs/security.md",
	},
	{says: "a rolling restart on the state file is safe", proofs: []string{"provider/e2e/crash TestKills", "provider/internal/lifecycle TestRestartAtEveryMoment", "provider/e2e TestStop"}},

	// Security: the API key.
	{
		says: "the key needs InstancesFullAccess and BlockStorageFullAccess, and for Elastic Metal BareMetalFullAccess", proofs: []string{"provider/e2e/deploy TestKeyOfTheModuleIsEnough", "provider/e2e/deploy TestPermissionSetsExist"},
		instead: "no set BareMetalFullAccess exists; it is ElasticMetalFullAccess", page: "docs/credentials.md",
	},
	{says: "the key is taken from SCW_ACCESS_KEY, SCW_SECRET_KEY and SCW_DEFAULT_PROJECT_ID, which the flags fall back to", proofs: []string{"provider/e2e TestEnvironment", "provider/e2e TestNoFileOfTheSDKIsRead"}},
	{says: "keys are in no argument, image or values", proofs: []string{"provider/e2e TestSecretsStayIn", "provider/e2e/deploy TestRenders", "provider/e2e/deploy TestValuesAreRefused"}},
	{says: "the key is never logged", proofs: []string{"provider/e2e TestSecretsStayIn", "provider/e2e TestSecretsOfARefusedAccount", "provider/e2e TestSecretsInRefusals", "provider/internal/cloud/scaleway TestDebugDumpsAreRefused"}},

	// Security: the agent's bootstrap.
	{
		says: "the base user data carries no secret", proofs: []string{"provider/e2e TestRealBackend", "cloudinit TestGolden", "provider/internal/cloud/scaleway FuzzTags"},
		instead: "it carries the machine's token until first contact, as the credentials page has it", page: "docs/security.md",
	},
	{says: "the agent polls over HTTPS at --bootstrap-addr and gets 204 while nothing is pending", proofs: []string{"provider/e2e TestRealBackend", "provider/internal/channel TestPollWithoutWaitAnswersAtOnce"}},
	{says: "every request is authorised before a command or blob is released", proofs: []string{"provider/e2e TestRealBackend", "provider/internal/channel TestAuthoriseRefusesAlike"}},
	{
		says:    "the token is base64 of HMAC-SHA256 of the machine's id under the bootstrap secret",
		proofs:  []string{"shared/token TestDeriveLikeOpenSSL", "provider/internal/channel TestPlainToken", "provider/internal/machine TestBoundLife", "provider/e2e TestRealBackend"},
		instead: "such a token is accepted in the first life of an id; the one that a host is given is of its id and its Create, since ids are used again", page: "docs/bootstrap.md",
	},
	{says: "it is derived again and compared in constant time", proofs: []string{"shared/token TestVerify", "shared/token FuzzVerify"}},
	{says: "who has neither secret nor machine cannot fetch another machine's blob", proofs: []string{"provider/e2e TestRealBackend", "provider/internal/channel TestBlobGoesToOneHost"}},
	{says: "the agent pins the CA, by default the server's certificate", proofs: []string{"provider/e2e TestPinIsTheCertificateByDefault", "agent TestTLSFaultsAreExplained"}},
	{says: "who is on the path cannot play the provider", proofs: []string{"agent TestTLSFaultsAreExplained", "agent TestOldTLSIsRefused", "provider/e2e TestRealBackend"}},
	{says: "one node's token opens no other node's blob", proofs: []string{"provider/e2e TestRealBackend"}},
	{says: "tokens are never stored", proofs: []string{"provider/e2e TestSecretsStayIn"}},
	{says: "the blob is consumed byte for byte, never parsed, never logged", proofs: []string{"provider/e2e TestRealBackend", "agent/internal/hook TestEnvironmentAndBlob", "provider/e2e TestSecretsStayIn"}},
	{says: "tokens survive a restart when the secret is pinned", proofs: []string{"provider/e2e TestRealBackend"}},
	{
		says: "without a secret a random one is made, whose tokens end with the process", proofs: []string{"provider/e2e TestRealBackend", "provider/e2e TestNoCredentials"},
		instead: "the real backend wants --allow-random-secret for that", page: "docs/configuration.md",
	},

	// Security: exposure.
	{says: "one replica in a zone", proofs: []string{"provider/e2e/deploy TestRenders", "provider/e2e/crash TestSecondProvider"}},
	{says: "the gRPC port is a ClusterIP service, not a load balancer", proofs: []string{"provider/e2e/deploy TestRenders", "provider/e2e/deploy TestNetworkPolicy"}},
	{says: "the metrics port shows no secrets", proofs: []string{"provider/e2e TestSecretsStayIn"}},
	{says: "the pod runs as user 65532 on a read-only root file system without capabilities", proofs: []string{"provider/e2e/deploy TestPodIsConfined"}},

	// Credentials.
	{says: "the Terraform module makes application, policy and key, on one project", proofs: []string{"provider/e2e/deploy TestKeyOfTheModuleIsEnough", "provider/e2e/deploy TestTerraformIsOfTheProvider"}},
	{
		says: "its variables, outputs and the address of the key are those of the page's commands", proofs: []string{"provider/e2e/deploy TestDocumentedTerraformNames"},
		instead: "it is in deploy/iam/scaleway, since other clouds have modules of their own", page: "docs/credentials.md",
	},
	{says: "elastic metal's permission is granted only with enable_elastic_metal", proofs: []string{"provider/e2e/deploy TestKeyOfTheModuleIsEnough"}},
	{says: "without the block storage set a Delete leaves its volume", proofs: []string{"provider/e2e/deploy TestKeyOfTheModuleIsEnough"}},
	{says: "the chart takes the keys of a Secret, whoever filled it", proofs: []string{"provider/e2e/deploy TestSecretExamplesFitTheChart", "provider/e2e/deploy TestOperatorsMakeTheSameSecrets"}},
	{says: "the commands of the page make Secrets that work", proofs: []string{"provider/e2e/deploy TestDocumentedCommands"}},
	{says: "the bootstrap secret comes from --bootstrap-secret or BIGFLEET_BOOTSTRAP_SECRET", proofs: []string{"provider/e2e TestEnvironment"}},
	{says: "the channel is always TLS", proofs: []string{"provider/e2e TestConfigurationFaults", "provider/e2e TestChannelSpeaksNothingInClear"}},
	{says: "the channel's certificate must match --bootstrap-endpoint", proofs: []string{"provider/e2e TestConfigurationFaults"}},
	{says: "a changed key, secret or certificate holds from the next start on", proofs: []string{"provider/e2e TestRotatedKeyIsReadAtTheNextStart", "provider/e2e TestTransportModes"}},
	{says: "Create is CreateServer, SetServerUserData and poweron", proofs: []string{"provider/internal/cloud/scaleway/instances TestOrderGolden", "provider/internal/cloud/scaleway/instances TestContract"}},
	{says: "Configure and Drain power on a host that somebody stopped", proofs: []string{"provider/internal/lifecycle TestHostsGoneOrOff", "provider/internal/cloud/scaleway/instances TestContract"}},
	{
		says: "Delete is poweroff and DeleteServer", proofs: []string{"provider/internal/cloud/scaleway/instances TestDeleteTakesTheVolumes", "provider/internal/cloud/scaleway/instances TestStuckTerminationIsForced"},
		instead: "terminate first, which is seconds instead of most of a minute; the two where it is refused", page: "docs/credentials.md",
	},
	{says: "boot volumes are tagged, deleted with their server, and reaped where they are left", proofs: []string{"provider/internal/cloud/scaleway/instances TestDeleteTakesTheVolumes", "provider/internal/cloud/scaleway/instances TestStrays"}},
	{says: "inventory is ListServers by tag", proofs: []string{"provider/internal/cloud/scaleway/instances TestListFiltersAgain", "provider/internal/cloud/scaleway/instances TestListReadsEveryPage"}},
	{says: "the binding is written to the tags once a Configure succeeded, and cleared by a Drain", proofs: []string{"provider/e2e TestRealBackend", "provider/internal/lifecycle TestMissingTagIsNoFailedJoin"}},
	{says: "price and allocatable come from ListServersTypes", proofs: []string{"provider/internal/cloud/scaleway/instances TestTypes"}},
	{says: "commands and blobs do not pass through the cloud's API", proofs: []string{"provider/e2e TestRealBackend"}},
	{says: "neither key, secret, token nor blob is in the log", proofs: []string{"provider/e2e TestSecretsStayIn", "agent/cmd/bigfleet-agent TestSecretsStayInside", "provider/internal/channel TestSecretsStayInside"}},
}

// TestPromises holds every promise to a proof that exists, and every difference
// to a page that names it.
func TestPromises(t *testing.T) {
	known := map[string][]string{} // tests, by package
	for _, p := range promises {
		if len(p.proofs) == 0 {
			t.Errorf("%q has no proof", p.says)
		}
		for _, proof := range p.proofs {
			dir, name, _ := strings.Cut(proof, " ")
			if known[dir] == nil {
				known[dir] = testsIn(t, dir)
			}
			if !slices.Contains(known[dir], name) {
				t.Errorf("%q: package %s has no %s", p.says, dir, name)
			}
		}
		if (p.instead == "") != (p.page == "") {
			t.Errorf("%q: a difference without a page, or a page without a difference", p.says)
		}
		if p.page != "" {
			read(t, filepath.Join("../..", p.page))
		}
	}
}

// testsIn lists the tests of a package.
func testsIn(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("../..", dir, "*_test.go"))
	if err != nil || len(files) == 0 {
		t.Errorf("package %s has no tests: %v", dir, err)
	}
	names := []string{""}
	for _, path := range files {
		file, err := parser.ParseFile(gotoken.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			if f, ok := d.(*ast.FuncDecl); ok && f.Recv == nil {
				names = append(names, f.Name.Name)
			}
		}
	}
	return names
}

// TestDefaults are those that operators and the chart rely on.
func TestDefaults(t *testing.T) {
	t.Parallel()
	_, help, _ := runApart(t, environment(), "--help")
	for flag, want := range map[string]string{"addr": ":9000", "metrics-addr": ":9090", "bootstrap-addr": ":9443", "reflection": "default true"} {
		_, text, _ := strings.Cut(help, "--"+flag+" ")
		if flag == "reflection" {
			_, text, _ = strings.Cut(help, "--"+flag)
		}
		if text, _, _ = strings.Cut(text, "\n      --"); !strings.Contains(text, want) {
			t.Errorf("--%s does not default to %s: %s", flag, want, text)
		}
	}
}

// TestRefusedBeforeAnyHandler: no call of a client without the right certificate
// is seen above TLS. Every call that is seen is counted.
func TestRefusedBeforeAnyHandler(t *testing.T) {
	t.Parallel()
	ca, other := newAuthority(t), newAuthority(t)
	cert, key := ca.pair("server", nil)
	p := startProvider(t, environment(), credentials.NewTLS(ca.client("")), "--use-fake-backend", "--fake-hosts=none", "--provider=certify",
		"--tls-cert="+cert, "--tls-key="+key, "--tls-ca="+ca.pem)
	calls := func() (n float64) {
		_, body := p.scrape(t, "/metrics")
		for series := range strings.Lines(body) {
			if strings.HasPrefix(series, "bigfleet_scaleway_rpc_duration_seconds_count{") {
				var v float64
				if _, err := fmt.Sscan(series[strings.LastIndexByte(series, ' '):], &v); err != nil {
					t.Fatal(err)
				}
				n += v
			}
		}
		return n
	}
	p.list()
	before := calls()
	stranger := ca.client()
	stranger.Certificates = append(stranger.Certificates, other.loaded("stranger", nil))
	for range 3 {
		p.unreachable(t, "no certificate", ca.client())
		p.unreachable(t, "certificate of another CA", stranger)
		p.unreachable(t, "plaintext", nil)
	}
	if after := calls(); before == 0 || after != before {
		t.Errorf("%v calls were handled, %v before the refused ones", after, before)
	}
}

// TestPinIsTheCertificateByDefault: without --bootstrap-ca agents are given the
// channel's certificate itself, and never what else its file holds.
func TestPinIsTheCertificateByDefault(t *testing.T) {
	t.Parallel()
	ca := newAuthority(t)
	cert, key := ca.pair("channel", nil)
	both := write(t, "both.pem", string(read(t, key))+string(read(t, cert)))
	p := startProvider(t, environment(), nil, "--use-fake-backend", "--fake-hosts=none", "--provider=certify", "--bootstrap-addr=127.0.0.1:0",
		"--bootstrap-endpoint=https://localhost:9443", "--bootstrap-tls-cert="+both, "--bootstrap-tls-key="+both)
	data := p.userDataOf(t, p.machines(1)[0])
	if !strings.Contains(data, line(t, cert)) {
		t.Error("the user data does not hold the channel's certificate")
	}
	if strings.Contains(data, line(t, key)) || strings.Contains(data, "PRIVATE KEY") {
		t.Error("the user data holds the channel's key")
	}
}

// userDataOf creates a machine in the fake backend and returns the user data of
// its server.
func (p *provider) userDataOf(t *testing.T, machine string) (data string) {
	t.Helper()
	if err := p.send(&pb.CreateRequest{MachineId: machine, ShardId: "s", ShardEpoch: 1, SequenceNumber: 1}); err != nil {
		t.Fatal(err)
	}
	const secretKey = "11111111-1111-4111-8111-111111111111" // the fake's own
	api := p.line(`fake Scaleway serves.*url=(\S+)`)[1]
	await(t, "the user data of a server", func() bool {
		var servers []struct {
			ID string `json:"id"`
		}
		_, list := fetch(t, api+"/debug/servers", "")
		if err := json.Unmarshal([]byte(list), &servers); err != nil || len(servers) != 1 {
			return false
		}
		var code int
		code, data = fetch(t, api+"/instance/v1/zones/fr-par-1/servers/"+servers[0].ID+"/user_data/cloud-init", secretKey)
		return code == http.StatusOK
	})
	return data
}

// TestChannelSpeaksNothingInClear, whatever certificates it was given.
func TestChannelSpeaksNothingInClear(t *testing.T) {
	t.Parallel()
	p := startProvider(t, environment(), nil, "--use-fake-backend", "--fake-hosts=none", "--provider=certify", "--bootstrap-addr=127.0.0.1:0")
	addr := p.line(`bootstrap channel.*listen=(\S+)`)[1]
	for _, proto := range []string{"HTTP/1.1", "HTTP/1.0"} {
		var d net.Dialer
		conn, err := d.DialContext(t.Context(), "tcp", addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		if err := conn.SetDeadline(time.Now().Add(20 * time.Second)); err != nil {
			t.Fatal(err)
		}
		if _, err := fmt.Fprintf(conn, "GET /v1/command?machine_id=%s %s\r\nHost: x\r\n\r\n", p.machines(1)[0], proto); err != nil {
			t.Fatal(err)
		}
		// It hangs up, at most with the word that this is the wrong protocol.
		answer, err := io.ReadAll(conn)
		if err != nil && !errors.Is(err, syscall.ECONNRESET) || len(answer) > 0 && !bytes.HasPrefix(answer, []byte("HTTP/1.0 400")) {
			t.Errorf("%s in clear is answered with %q, %v", proto, answer, err)
		}
	}
}

// TestRotatedKeyIsReadAtTheNextStart, and not before.
func TestRotatedKeyIsReadAtTheNextStart(t *testing.T) {
	t.Parallel()
	cloud := start(t, environment(), "fakecloud", "--addr=127.0.0.1:0", "--scale=0.001")
	path := write(t, "key", cloud.line(`SCW_SECRET_KEY=(\S+)`)[1]+"\n")
	env := environment(
		"SCW_API_URL="+cloud.line(`SCW_API_URL=(\S+)`)[1], "SCW_ACCESS_KEY="+cloud.line(`SCW_ACCESS_KEY=(\S+)`)[1], "SCW_SECRET_KEY_FILE="+path,
		"SCW_DEFAULT_PROJECT_ID="+cloud.line(`SCW_DEFAULT_PROJECT_ID=(\S+)`)[1], "BIGFLEET_BOOTSTRAP_SECRET=0123456789abcdef0123456789abcdef",
	)
	args := append(deployment(t), "--bootstrap-addr=127.0.0.1:0", "--reconcile-interval=1s", "--provider=certify")
	p := startProvider(t, env, nil, args...)
	if err := os.WriteFile(path, []byte("33333333-cafe-4bad-8bad-333333333333\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	passes := func() float64 { return p.counter(t, `bigfleet_scaleway_reconciles_total{result="complete"}`) }
	before := passes()
	await(t, "passes with the key of the start", func() bool { return passes() >= before+2 })
	if code := p.terminate(); code != 0 {
		t.Errorf("exit code %d", code)
	}
	code, out := run(t, env, append(args, "--addr=127.0.0.1:0", "--metrics-addr=127.0.0.1:0")...)
	if code != 1 || !strings.Contains(out, "refuses the credentials") {
		t.Errorf("with another key in the file: exit code %d\n%s", code, out)
	}
}
