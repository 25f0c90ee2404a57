package scaleway

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"bigfleet-providers/provider"
	"bigfleet-providers/provider/internal/cloud/scaleway/elasticmetal"
)

func TestMetalDefaults(t *testing.T) {
	for name, tt := range map[string]struct {
		args   []string
		image  string
		create time.Duration
		poll   time.Duration
	}{
		"instances": {nil, "ubuntu_jammy", 30 * time.Minute, 5 * time.Second},
		"metal":     {[]string{"--substrate=elastic-metal"}, "Ubuntu 24.04", 2 * time.Hour, 15 * time.Second},
		"metal, given": {
			[]string{"--substrate=elastic-metal", "--image=Debian 12", "--create-timeout=30m", "--poll-interval=5s"},
			"Debian 12", 30 * time.Minute, 5 * time.Second,
		},
	} {
		cfg, s, err := load(append(tt.args, "--use-fake-backend"), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := cfg.Validate(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if s.Image != tt.image || cfg.CreateTimeout != tt.create || s.PollInterval != tt.poll {
			t.Errorf("%s: image %q, create-timeout %s, poll-interval %s", name, s.Image, cfg.CreateTimeout, s.PollInterval)
		}
		if limit := s.Scope(cfg).UserDataLimit; (limit == elasticmetal.MaxUserDataBytes) != s.metal() {
			t.Errorf("%s: user data of %d bytes at most", name, limit)
		}
	}
}

func TestMetalFaults(t *testing.T) {
	for name, tt := range map[string]struct {
		args []string
		want []string
	}{
		"metal":     {[]string{"--substrate=elastic-metal", "--ssh-keys=a, b", "--no-public-ip"}, []string{`--ssh-keys: "a"`, `--ssh-keys: "b"`, "--no-public-ip"}},
		"instances": {[]string{"--ssh-keys=6ba7b810-9dad-41d1-80b4-00c04fd430c8"}, []string{"--ssh-keys: only with --substrate=elastic-metal"}},
		"neither":   {[]string{"--substrate=lego"}, []string{"--substrate", "elastic-metal"}},
	} {
		cfg, _, err := load(append(tt.args, "--use-fake-backend"), nil)
		if err != nil {
			t.Fatal(err)
		}
		err = cfg.Validate()
		for _, part := range tt.want {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("%s: %v, want %q", name, err, part)
			}
		}
	}
}

// TestMetalLive: a live check asks for what an order needs.
func TestMetalLive(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		args []string
		fine bool
		want []string
	}{
		"fine":      {nil, true, []string{"ok    credentials", "ok    SSH keys: the project has 1", "until you give it back by hand", "supports cloud-init", "ok    spare servers"}},
		"no system": {[]string{"--image=Proxmox VE 8"}, false, []string{"FAIL", "does not support cloud-init"}},
		"no offer":  {[]string{"--offerings=" + writeFile(t, `[{"commercial_type": "EM-X", "zone": "fr-par-1", "count": 1}]`)}, false, []string{"FAIL  offerings[0]: offer EM-X"}},
		"no cloud-init": {
			[]string{"--offerings=" + writeFile(t, `[{"commercial_type": "EM-RV1", "zone": "fr-par-1", "count": 1}]`)}, false, []string{"takes no user data"},
		},
		"no server": {
			[]string{"--offerings=" + writeFile(t, `[{"commercial_type": "EM-B112X-SSD", "zone": "fr-par-1", "servers": ["6ba7b810-9dad-41d1-80b4-00c04fd430c8"]}]`)},
			false, []string{"FAIL  offerings[0].servers[0]: server 6ba7b810"},
		},
	} {
		var out bytes.Buffer
		args := append([]string{"check-config", "--live", "--substrate=elastic-metal", "--use-fake-backend"}, tt.args...)
		if code := provider.Main(Vendor(), "test", args, &out, &out); (code == 0) != tt.fine {
			t.Errorf("%s: exit code %d\n%s", name, code, &out)
		}
		for _, part := range tt.want {
			if !strings.Contains(out.String(), part) {
				t.Errorf("%s: %q is not in\n%s", name, part, &out)
			}
		}
	}
}
