package host

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"bigfleet-providers/provider/e2e/host/hosttest"
	"bigfleet-providers/provider/internal/fakecloud"
	"bigfleet-providers/provider/internal/fakecloud/nspawn"
)

// release is the version of the agent's package in tests that need one only.
const release = "v0.1.0"

// firstBoot is a way in which a machine may boot for the first time. In all of
// them the agent has to come up and the machine to join.
type firstBoot struct {
	name    string
	install string // --agent-install
	base    string // base user data; @REPOSITORY@ and @PROXY@ are filled in
	// files are on the image, by absolute path, and gone are not.
	files map[string]string
	gone  []string
	// options of the provider, for what is special.
	options func(*testing.T, *hosttest.World, *hosttest.ProviderOptions)
	noIPv4  bool
	reboots bool // the operator's part has the guest reboot
	// shows are scripts that have to succeed in the guest.
	shows []string
	// status is what cloud-init is to say: "done" if empty.
	status string
}

const baseConfig = `#cloud-config
write_files:
  - path: /etc/theirs
    content: theirs
runcmd:
  - touch /var/lib/their-runcmd
`

var ranConfig = []string{"grep -q theirs /etc/theirs", "test -e /var/lib/their-runcmd"}

var firstBoots = []firstBoot{
	{name: "channel, no base", install: "channel"},
	{name: "image, no base", install: "image"},
	{name: "channel, cloud-config", install: "channel", base: baseConfig, shows: ranConfig},
	{
		name: "channel, script", install: "channel",
		base: "#!/bin/sh\necho theirs >/etc/theirs\ntouch /var/lib/their-runcmd\n", shows: ranConfig,
	},
	{
		name: "image, multipart", install: "image",
		base: "Content-Type: multipart/mixed; boundary=xx\nMIME-Version: 1.0\n\n--xx\nContent-Type: text/cloud-config\n\n" +
			baseConfig + "\n--xx\nContent-Type: text/x-shellscript\n\n#!/bin/sh\ntouch /var/lib/their-script\n--xx--\n",
		shows: append([]string{"test -e /var/lib/their-script"}, ranConfig...),
	},
	{name: "image, CRLF", install: "image", base: strings.ReplaceAll(baseConfig, "\n", "\r\n"), shows: ranConfig},
	{name: "image, BOM and blank lines", install: "image", base: "\xef\xbb\xbf\n\n" + baseConfig, shows: ranConfig},
	{
		name: "channel, base that fails", install: "channel", status: "error",
		base:  "#cloud-config\nwrite_files:\n  - {path: /etc/x, owner: 'nobody-at-all:x', content: x}\nruncmd:\n  - touch /var/lib/their-runcmd\n  - exit 3\n",
		shows: []string{"test -e /var/lib/their-runcmd"},
	},
	{
		name: "image, script that fails", install: "image", status: "error",
		base: "#!/bin/sh\nkill -9 $$\n",
	},
	{name: "channel, no curl", install: "channel", gone: []string{"/usr/bin/curl"}, shows: []string{"! command -v curl"}},
	{
		name: "channel, dpkg lock held for a minute", install: "channel",
		files: holdLock(60), shows: append([]string{"journalctl -u cloud-final | grep -q 'install failed, again'"}, nothingPending...),
	},
	{
		// cloud-init takes its scripts for run before it runs them: after the reboot
		// it does nothing more.
		name: "channel, reboot in runcmd while dpkg is locked", install: "channel",
		base: "#cloud-config\nruncmd:\n  - touch /var/lib/their-runcmd\n  - reboot\n", files: holdLock(15),
		reboots: true, shows: append([]string{"test -e /var/lib/their-runcmd", tookUp}, nothingPending...),
	},
	{
		name: "channel, hard reboot in a script", install: "channel",
		base:    "#!/bin/sh\nsync\nreboot --force --force\n",
		reboots: true, shows: append([]string{tookUp}, nothingPending...),
	},
	{
		name: "apt, hard reboot in the middle of dpkg", install: "apt",
		base:    "#cloud-config\nruncmd:\n  - mv /usr/bin/deb-systemd-helper /usr/bin/helper\n  - mv /usr/bin/cut-off /usr/bin/deb-systemd-helper\n",
		files:   map[string]string{"/usr/bin/cut-off": cutPostinst},
		reboots: true, shows: append([]string{tookUp}, nothingPending...),
	},
	{
		name: "image, reboot by power_state", install: "image",
		base:    "#cloud-config\npower_state: {mode: reboot, delay: now}\n",
		reboots: true, shows: append([]string{"! journalctl -u bigfleet-agent-install | grep -q 'first boot: started'"}, nothingPending...),
	},
	{
		// As after a boot that was cut off in write_files, which is not run again.
		name: "channel, files that were not written", install: "channel",
		base: "#cloud-config\nruncmd:\n  - rm -rf /etc/bigfleet-agent\n", shows: nothingPending,
	},
	{
		name: "channel, broken APT source", install: "channel",
		files: brokenSource,
	},
	{name: "apt, no base, no gpg", install: "apt", shows: []string{"! command -v gpg"}},
	{
		name: "apt, cloud-config with packages", install: "apt",
		base:  baseConfig + "apt:\n  preserve_sources_list: true\n  sources:\n    theirs: {source: 'deb [trusted=yes] @REPOSITORY@ stable main'}\npackages: [operator-tool]\n",
		shows: append([]string{"test -e /usr/share/operator-tool"}, ranConfig...),
	},
	{
		name: "apt, broken other source and a lock", install: "apt",
		files: merged(brokenSource, holdLock(20)),
	},
	{
		// The clock of a container is this machine's, so the certificate is what is
		// wrong by then: the same for who looks at both.
		name: "channel, clock is late", install: "channel", options: notYetValid,
		shows: []string{"grep -q 'not yet valid.*clock says' /var/log/cloud-init-output.log"},
	},
	{
		name: "image, clock is late", install: "image", options: notYetValid,
		shows: []string{"journalctl -u bigfleet-agent | grep -q 'not yet valid'"},
	},
	{
		name: "channel, IPv6 only", install: "channel", noIPv4: true,
		options: func(_ *testing.T, w *hosttest.World, opts *hosttest.ProviderOptions) { opts.Host = w.Gateway6() },
		shows:   []string{"! ip -4 route show default | grep .", "! ip -4 -o addr show eth0 | grep -v 169.254"},
	},
	{
		name: "channel, HTTPS proxy", install: "channel", options: behindProxy,
		base: "#cloud-config\nwrite_files:\n  - {path: /etc/default/bigfleet-agent, content: 'HTTPS_PROXY=@PROXY@'}\n",
	},
}

// What is to be seen of a first boot that was cut off, and of one that is over.
const tookUp = "journalctl -u bigfleet-agent-install | grep -q 'first boot: started'"

// cutPostinst stands in for a program that the package's postinst calls, and
// resets the host in there.
const cutPostinst = `#!/bin/sh
mv /usr/bin/helper /usr/bin/deb-systemd-helper
sync
reboot --force --force
sleep 60
`

var nothingPending = []string{
	"! test -e /etc/systemd/system/bigfleet-agent-install.service",
	"! test -e /etc/systemd/system/multi-user.target.d/bigfleet-agent-install.conf",
}

var brokenSource = map[string]string{"/etc/apt/sources.list.d/broken.list": "deb http://192.0.2.1/ nowhere main\nnonsense\n"}

func merged(all ...map[string]string) map[string]string {
	out := map[string]string{}
	for _, one := range all {
		maps.Copy(out, one)
	}
	return out
}

// notYetValid puts a certificate whose time is to come in front of the provider,
// which would refuse to start with one.
func notYetValid(t *testing.T, w *hosttest.World, opts *hosttest.ProviderOptions) {
	opts.Host = loopback(w)
	opts.CA = hosttest.NewAuthority(t)
	opts.Pair = opts.CA.Pair(t, time.Now().Add(-time.Minute), w.Gateway(), opts.Host)
	opts.Endpoint = "https://" + w.Gateway() + ":8443"
	w.Front(t, opts.CA, opts.CA.Pair(t, time.Now().Add(40*time.Second), w.Gateway()), opts.Host)
}

// behindProxy is a provider that no guest reaches, under a name that none can
// resolve.
func behindProxy(t *testing.T, w *hosttest.World, opts *hosttest.ProviderOptions) {
	opts.Host = loopback(w)
	opts.Endpoint = "https://provider.test:8443"
	opts.CA = hosttest.NewAuthority(t)
	opts.Pair = opts.CA.Pair(t, time.Now().Add(-time.Minute), "provider.test")
	proxy := w.NewProxy(t, "provider.test:8443", opts.Host+":8443")
	opts.Base = strings.ReplaceAll(opts.Base, "@PROXY@", proxy.URL)
}

// loopback is an address of this machine that is the world's own and that no
// guest reaches.
func loopback(w *hosttest.World) string { return "127" + strings.TrimPrefix(w.Gateway(), "10") }

// holdLock is a unit that has dpkg's lock for some seconds from early in the
// boot, as unattended-upgrades does.
func holdLock(seconds int) map[string]string {
	const path = "/etc/systemd/system/hold-lock.service"
	return map[string]string{
		path: fmt.Sprintf(`[Unit]
DefaultDependencies=no
Before=cloud-config.service
After=local-fs.target
[Service]
ExecStart=/usr/bin/python3 -c "import fcntl, time; f = open('/var/lib/dpkg/lock-frontend', 'w'); fcntl.lockf(f, fcntl.LOCK_EX); time.sleep(%d)"
[Install]
WantedBy=sysinit.target
`, seconds),
		"/etc/systemd/system/sysinit.target.wants/hold-lock.service": "-> " + path,
	}
}

func TestFirstBoot(t *testing.T) {
	hosttest.Require(t)
	deb := hosttest.AgentPackage(t, t.TempDir(), release)
	image := hosttest.ImageLayer(t, deb)
	for _, tt := range firstBoots {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			tt.run(t, image)
		})
	}
}

func (b firstBoot) run(t *testing.T, image string) {
	world := hosttest.Options{Prepare: b.prepare}
	if b.install == "image" {
		world.Layers = []string{image}
	}
	w := hosttest.NewWorld(t, world)
	opts := hosttest.ProviderOptions{Install: b.install, Base: b.base}
	if b.install == "channel" {
		packages := t.TempDir()
		hosttest.AgentPackage(t, packages, release)
		opts.Args = append(opts.Args, "--agent-packages="+packages)
	}
	if b.install == "apt" {
		deb := hosttest.AgentPackage(t, t.TempDir(), release)
		theirs := hosttest.BuildPackage(t, t.TempDir(), hosttest.DebianPackage{
			Name: "operator-tool", Version: "1", Files: map[string]string{"/usr/share/operator-tool": "theirs\n"},
		})
		repo := w.NewRepository(t, deb)
		opts.Args = append(opts.Args, "--agent-apt-uri="+repo.URL, "--agent-apt-key="+repo.Key)
		if strings.Contains(opts.Base, "@REPOSITORY@") {
			opts.Base = strings.ReplaceAll(opts.Base, "@REPOSITORY@", w.NewRepository(t, theirs).URL)
		}
	}
	if b.options != nil {
		b.options(t, w, &opts)
	}
	m := w.NewProvider(t, opts).Machine(t)
	began := time.Now()
	m.Do(t, hosttest.Create, "")
	t.Logf("IDLE after %.1f s", time.Since(began).Seconds())
	g := m.Guest(t)
	if b.reboots {
		// Some releases of systemd head the list.
		g.AwaitTrue(t, time.Minute, "test $(journalctl --list-boots | grep -cE '^ *-?[0-9]') -gt 1")
	}
	status := g.AwaitBooted(t)
	if want := "status: " + cmp.Or(b.status, "done"); !strings.Contains(status, want) || g.Run(t, "cloud-id") != "scaleway" {
		t.Errorf("cloud-init says, want %q, by its Scaleway source:\n%s\n%s", want, status, g.Run(t, "tail -40 /var/log/cloud-init-output.log"))
	}
	if !b.reboots { // later the cloud has no user data any more
		sum := fmt.Sprintf("%x", sha256.Sum256(m.UserData(t)))
		if got, _, _ := strings.Cut(g.Run(t, "sha256sum </var/lib/cloud/instance/user-data.txt"), " "); got != sum {
			t.Errorf("cloud-init read user data with the SHA-256 %s, the cloud holds %s", got, sum)
		}
		if said := g.Run(t, "cloud-init schema --config-file /var/lib/cloud/instance/cloud-config.txt 2>&1 || true"); !strings.HasPrefix(said, "Valid cloud-config") {
			t.Errorf("cloud-init's schema: %s", said)
		}
	}
	for _, script := range b.shows {
		if !g.Holds(t, script) {
			t.Errorf("in the guest: not so: %s\n%s", script, hosttest.Tail(g.Run(t, "cat /var/log/cloud-init-output.log"), 30))
		}
	}
	m.Do(t, hosttest.Configure, joinBlob)
	if got := g.Run(t, "cat /var/lib/member-of"); got != "c1" {
		t.Errorf("the host is a member of %q", got)
	}
}

// prepare makes the guest's disk what the case says.
func (b firstBoot) prepare(_ fakecloud.Guest, opts *nspawn.Options) error {
	opts.NoIPv4 = b.noIPv4
	return hosttest.Change(opts, b.files, b.gone)
}
