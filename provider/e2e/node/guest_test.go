package node

import (
	"maps"
	"os"
	"path/filepath"
	"testing"

	"bigfleet-providers/provider/e2e/host/hosttest"
	"bigfleet-providers/provider/internal/fakecloud"
	"bigfleet-providers/provider/internal/fakecloud/nspawn"
)

// baseUserData chooses the hook, as docs/hooks.md says.
const baseUserData = `#cloud-config
runcmd:
- mkdir -p /opt/bigfleet
- ln -s /usr/lib/bigfleet-agent/kubeadm /opt/bigfleet/bootstrap
`

const (
	programsDir = "/opt/kubernetes"
	imagesDir   = "/opt/images"
	networkFile = "/etc/cni/net.d/10-image.conflist"
)

// network is a CNI configuration for pods of one node.
const network = `{"cniVersion": "0.4.0", "name": "bridge", "plugins": [
  {"type": "bridge", "bridge": "cni0", "isGateway": true, "ipMasq": true,
   "ipam": {"type": "host-local", "ranges": [[{"subnet": "10.244.7.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}
]}
`

// machineImage is what the image of a machine has, but for a CNI configuration.
var machineImage = map[string]string{
	"/usr/bin/kubelet": "-> " + programsDir + "/kubelet",
	"/usr/bin/kubeadm": "-> " + programsDir + "/kubeadm",

	// As in Kubernetes' own packages.
	"/etc/systemd/system/kubelet.service": `[Unit]
Description=kubelet: The Kubernetes Node Agent
Wants=network-online.target
After=network-online.target
[Service]
ExecStart=/usr/bin/kubelet
Restart=always
StartLimitInterval=0
RestartSec=10
[Install]
WantedBy=multi-user.target
`,
	"/etc/systemd/system/kubelet.service.d/10-kubeadm.conf": `[Service]
Environment="KUBELET_KUBECONFIG_ARGS=--bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf"
Environment="KUBELET_CONFIG_ARGS=--config=/var/lib/kubelet/config.yaml"
EnvironmentFile=-/var/lib/kubelet/kubeadm-flags.env
EnvironmentFile=-/etc/default/kubelet
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS $KUBELET_CONFIG_ARGS $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
`,
	"/etc/default/kubelet": "KUBELET_EXTRA_ARGS=--node-labels=example.org/rack=r7\n",

	"/etc/resolv.conf": "# nobody resolves names here; kubelets want the file\n",

	"/etc/sysctl.d/90-kubernetes.conf": "net.ipv4.ip_forward = 1\n",
	// The container may not raise anybody's OOM score, which containerd would do.
	"/etc/containerd/config.toml": `version = 2
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "` + image + `"
  restrict_oom_score_adj = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = true
`,

	// What a kubelet and containerd need and a container lacks: cgroups of version
	// 1 and settings of its own network to write to, the values of three settings
	// of the kernel, which stay read-only, and the kernel's log.
	"/usr/local/sbin/be-a-machine": `#!/bin/sh
set -eu
for group in /sys/fs/cgroup/*; do
  if [ ! -L "$group" ] && mountpoint -q "$group"; then mount -o remount,rw,bind "$group"; fi
done
mount --bind /proc/sys/net /proc/sys/net
mount -o remount,rw,bind /proc/sys/net
mkdir -p /run/be-a-machine
for setting in vm/overcommit_memory=1 kernel/panic=10 kernel/panic_on_oops=1; do
  name=${setting%=*}
  shown=/run/be-a-machine/${name#*/}
  echo "${setting#*=}" >"$shown"
  mount --bind "$shown" "/proc/sys/$name"
done
[ -e /dev/kmsg ] || ln -s /dev/null /dev/kmsg
`,
	"/etc/systemd/system/be-a-machine.service": `[Unit]
DefaultDependencies=no
Before=sysinit.target systemd-sysctl.service
[Service]
Type=oneshot
RemainAfterExit=yes
ExecStart=/usr/local/sbin/be-a-machine
`,
	"/etc/systemd/system/sysinit.target.wants/be-a-machine.service": "-> ../be-a-machine.service",
}

// newWorld makes a world whose guests can be nodes. What the machines' image has
// beyond machineImage is in files.
func newWorld(t *testing.T, files map[string]string) *hosttest.World {
	t.Helper()
	require(t)
	images := hosttest.TempDir(t)
	buildImage(t, images)
	disk := maps.Clone(machineImage)
	maps.Copy(disk, files)
	return hosttest.NewWorld(t, hosttest.Options{
		Layers: []string{os.Getenv(layerVariable)},
		Prepare: func(_ fakecloud.Guest, opts *nspawn.Options) error {
			opts.SystemCalls = []string{"add_key", "keyctl"} // runc gives each container a keyring
			opts.Binds = append(opts.Binds,
				nspawn.Bind{Source: os.Getenv(kubernetesVariable), Target: programsDir, ReadOnly: true},
				nspawn.Bind{Source: images, Target: imagesDir, ReadOnly: true})
			// A container's file system is an overlay, which cannot be over another, as
			// the guest's own is.
			for _, name := range []string{"containerd", "kubelet"} {
				dir := filepath.Join(opts.Dir, name)
				if err := os.Mkdir(dir, 0o755); err != nil {
					return err
				}
				opts.Binds = append(opts.Binds, nspawn.Bind{Source: dir, Target: "/var/lib/" + name})
			}
			return hosttest.Change(opts, disk, nil)
		},
	})
}

// newProvider starts a provider whose machines get the agent from the channel
// and join by the kubeadm hook.
func newProvider(t *testing.T, w *hosttest.World, args ...string) *hosttest.Provider {
	t.Helper()
	packages := t.TempDir()
	hosttest.AgentPackage(t, packages, "v0.1.0")
	return w.NewProvider(t, hosttest.ProviderOptions{
		Install: "channel", Base: baseUserData, Args: append(args, "--agent-packages="+packages),
	})
}

// importImage puts the pods' image into the guest's container runtime.
func importImage(t *testing.T, g *hosttest.Guest) {
	t.Helper()
	g.Run(t, "ctr --namespace k8s.io images import "+imagesDir+"/pause.tar")
}
