package node

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"bigfleet-providers/provider/e2e/host/hosttest"
)

// cluster is a control plane whose programs run on this machine, at an address
// that guests reach. What kubeadm init would put into it is there.
type cluster struct {
	name, dir string
	address   string // of the API server, HOST:PORT
	client    *http.Client
	programs  []*process
}

// settings is what kubeadm makes certificates, roles and configuration from. The
// kubelet's are for a guest in a container: it may see cgroups of version 1, and
// how full this machine's disk is must not evict pods.
const settings = `apiVersion: kubeadm.k8s.io/v1beta4
kind: InitConfiguration
localAPIEndpoint: {advertiseAddress: %[1]q, bindPort: %[2]d}
---
apiVersion: kubeadm.k8s.io/v1beta4
kind: ClusterConfiguration
kubernetesVersion: %[3]s
clusterName: %[4]s
controlPlaneEndpoint: "%[1]s:%[2]d"
encryptionAlgorithm: ECDSA-P256
networking: {podSubnet: 10.244.0.0/16, serviceSubnet: 10.96.0.0/16}
---
apiVersion: kubelet.config.k8s.io/v1beta1
kind: KubeletConfiguration
failCgroupV1: false
imageGCHighThresholdPercent: 100
evictionHard: {memory.available: 1Mi, nodefs.available: 0%%, imagefs.available: 0%%}
`

// startCluster starts one that ends with the test. The number tells clusters of
// one world apart.
func startCluster(t *testing.T, w *hosttest.World, name string, number int) *cluster {
	t.Helper()
	host, port := w.Gateway(), 6443+1000*number
	c := &cluster{name: name, dir: filepath.Join(w.Dir, name), address: net.JoinHostPort(host, strconv.Itoa(port))}
	t.Cleanup(func() { c.stop(t) })
	version := strings.TrimSpace(c.run(t, "", "kubeadm", "version", "--output=short"))
	config, pki := filepath.Join(c.dir, "kubeadm.yaml"), filepath.Join(c.dir, "pki")
	hosttest.WriteFile(t, config, fmt.Sprintf(settings, host, port, version, name), 0o600)
	// Nodes read the certificates' folder from the cluster's configuration: there
	// it must be the usual one.
	own := filepath.Join(c.dir, "kubeadm-here.yaml")
	hosttest.WriteFile(t, own, strings.Replace(fmt.Sprintf(settings, host, port, version, name),
		"kind: ClusterConfiguration\n", "kind: ClusterConfiguration\ncertificatesDir: "+pki+"\n", 1), 0o600)
	c.run(t, "", "kubeadm", "init", "phase", "certs", "all", "--config", own)
	for _, who := range []string{"super-admin", "controller-manager", "scheduler"} {
		c.run(t, "", "kubeadm", "init", "phase", "kubeconfig", who, "--config", own, "--kubeconfig-dir", c.dir)
	}
	c.connect(t)
	c.startServer(t, host, port, pki)
	hosttest.Await(t, 2*time.Minute, "the API server of "+name+" is ready", func() bool {
		c.check(t)
		return c.try(t, "/readyz", nil) == nil
	})
	// Sooner they would give up on a server that takes its time.
	c.startControllers(t, pki)
	for _, phase := range [][]string{{"upload-config", "kubeadm"}, {"upload-config", "kubelet"}, {"bootstrap-token", "--skip-token-print"}} {
		c.run(t, "", "kubeadm", append(append([]string{"init", "phase"}, phase...), "--config", config, "--kubeconfig", c.kubeconfig())...)
	}
	return c
}

const services = "--service-cluster-ip-range=10.96.0.0/16"

// startServer starts the API server and what it keeps its objects in.
func (c *cluster) startServer(t *testing.T, host string, port int, pki string) {
	t.Helper()
	in := func(name string) string { return filepath.Join(pki, name) }
	etcd, err := exec.LookPath("etcd")
	if err != nil {
		t.Fatalf("%v: run .ci/setup node", err)
	}
	store, peers := fmt.Sprintf("http://%s:%d", host, port+1), fmt.Sprintf("http://%s:%d", host, port+2)
	c.start(t, etcd, "--data-dir="+filepath.Join(c.dir, "etcd"), "--unsafe-no-fsync",
		"--listen-client-urls="+store, "--advertise-client-urls="+store,
		"--listen-peer-urls="+peers, "--initial-advertise-peer-urls="+peers, "--initial-cluster=default="+peers)
	c.start(t, program("kube-apiserver"), "--etcd-servers="+store, "--bind-address="+host, "--advertise-address="+host,
		"--secure-port="+strconv.Itoa(port), "--tls-cert-file="+in("apiserver.crt"), "--tls-private-key-file="+in("apiserver.key"),
		"--client-ca-file="+in("ca.crt"), "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--enable-bootstrap-token-auth=true", "--service-account-issuer=https://kubernetes.default.svc",
		"--service-account-key-file="+in("sa.pub"), "--service-account-signing-key-file="+in("sa.key"), services)
}

// startControllers starts what works on the objects.
func (c *cluster) startControllers(t *testing.T, pki string) {
	t.Helper()
	in := func(name string) string { return filepath.Join(pki, name) }
	config := filepath.Join(c.dir, "controller-manager.conf")
	c.start(t, program("kube-controller-manager"), "--kubeconfig="+config, "--secure-port=0", "--leader-elect=false",
		"--use-service-account-credentials=true", "--controllers=*,bootstrapsigner,tokencleaner",
		"--root-ca-file="+in("ca.crt"), "--cluster-signing-cert-file="+in("ca.crt"), "--cluster-signing-key-file="+in("ca.key"),
		"--service-account-private-key-file="+in("sa.key"), "--allocate-node-cidrs=true", "--cluster-cidr=10.244.0.0/16", services)
	c.start(t, program("kube-scheduler"), "--kubeconfig="+filepath.Join(c.dir, "scheduler.conf"), "--secure-port=0", "--leader-elect=false")
}

// kubeconfig is the administrator's.
func (c *cluster) kubeconfig() string { return filepath.Join(c.dir, "super-admin.conf") }

// joinLine is what an administrator is told to run on a node.
func (c *cluster) joinLine(t *testing.T) string {
	t.Helper()
	line := c.run(t, "", "kubeadm", "token", "create", "--print-join-command", "--kubeconfig", c.kubeconfig())
	return strings.TrimSpace(line)
}

// apply creates objects from YAML.
func (c *cluster) apply(t *testing.T, manifests string) {
	t.Helper()
	c.run(t, manifests, "kubectl", "--kubeconfig", c.kubeconfig(), "apply", "--filename=-")
}

// run runs one of Kubernetes' programs to its end and returns what it printed.
func (c *cluster) run(t *testing.T, input, name string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program(name), args...)
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + c.dir} // no proxy, no user's kubeconfig
	cmd.Stdin = strings.NewReader(input)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s%s", name, strings.Join(args, " "), err, out, stderr.Bytes())
	}
	return string(out)
}
