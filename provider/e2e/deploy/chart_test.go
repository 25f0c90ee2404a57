package deploy

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

var update = flag.Bool("update", false, "write the golden files")

func TestChartIsCleanForLint(t *testing.T) {
	for _, set := range valueSets(t) {
		stdout, stderr, err := helm(t, "lint", chart, "--strict", "--values", set.file)
		if err != nil {
			t.Errorf("%s: %v\n%s%s", set.name, err, stdout, stderr)
		}
	}
}

// TestRenders compares whole releases with golden files and reads them into the
// Kubernetes types.
func TestRenders(t *testing.T) {
	for _, set := range valueSets(t) {
		t.Run(set.name, func(t *testing.T) {
			got := render(t, set.release, "--values", set.file)
			o := decode(t, got)
			if o.Deployment == nil || o.Services[set.release+"-grpc"] == nil {
				t.Errorf("no Deployment, or no Service for gRPC")
			}
			golden := filepath.Join("testdata", "renders", set.name+".yaml")
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatalf("%v; write it with -update", err)
			}
			if d := cmp.Diff(string(want), got); d != "" {
				t.Errorf("another render; look at the difference, then run with -update (-want +got):\n%s", d)
			}
		})
	}
}

// TestPodIsConfined: what a pod may do is the same for every cloud.
func TestPodIsConfined(t *testing.T) {
	for _, set := range valueSets(t) {
		t.Run(set.name, func(t *testing.T) {
			o := decode(t, render(t, set.release, "--values", set.file))
			spec, c := o.Deployment.Spec.Template.Spec, o.container(t)
			if o.Deployment.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType || *o.Deployment.Spec.Replicas != 1 {
				t.Errorf("%s with %d replicas: two processes could meet on the state file", o.Deployment.Spec.Strategy.Type, *o.Deployment.Spec.Replicas)
			}
			want := &corev1.PodSecurityContext{
				RunAsNonRoot: new(true), RunAsUser: new(int64(65532)), RunAsGroup: new(int64(65532)), FSGroup: new(int64(65532)),
				FSGroupChangePolicy: new(corev1.FSGroupChangeOnRootMismatch),
				SeccompProfile:      &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
			}
			if d := cmp.Diff(want, spec.SecurityContext); d != "" {
				t.Errorf("pod's security context (-want +got):\n%s", d)
			}
			wantContainer := &corev1.SecurityContext{
				AllowPrivilegeEscalation: new(false), ReadOnlyRootFilesystem: new(true),
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
			}
			if d := cmp.Diff(wantContainer, c.SecurityContext); d != "" {
				t.Errorf("container's security context (-want +got):\n%s", d)
			}
			if *spec.AutomountServiceAccountToken || *o.ServiceAccount.AutomountServiceAccountToken || spec.ServiceAccountName != o.ServiceAccount.Name {
				t.Error("the pod gets a token of the cluster, which it has no use for")
			}
			if spec.HostNetwork || spec.HostPID || spec.HostIPC {
				t.Error("it shares a namespace of the node")
			}
			if c.Resources.Requests.Cpu().IsZero() || c.Resources.Requests.Memory().IsZero() || c.Resources.Limits.Memory().IsZero() {
				t.Errorf("resources: %+v", c.Resources)
			}
			for name, probe := range map[string]*corev1.Probe{"/healthz": c.LivenessProbe, "/readyz": c.ReadinessProbe} {
				if probe == nil || probe.HTTPGet.Path != name || probe.HTTPGet.Port != intstr.FromString("metrics") {
					t.Errorf("%s is not probed on the metrics port: %+v", name, probe)
				}
			}
			for _, v := range spec.Volumes {
				if v.HostPath != nil {
					t.Errorf("volume %s is of the node", v.Name)
				}
				if v.Secret != nil && *v.Secret.DefaultMode != 0o440 {
					t.Errorf("volume %s: mode %o", v.Name, *v.Secret.DefaultMode)
				}
			}
			for _, m := range c.VolumeMounts {
				if m.Name != "state" && m.Name != "run" && !m.ReadOnly {
					t.Errorf("mount %s is writable", m.MountPath)
				}
			}
			for _, s := range o.Services {
				for _, p := range s.Spec.Ports {
					if p.Name == "grpc" && (s.Spec.Type != corev1.ServiceTypeClusterIP || len(s.Spec.Ports) != 1) {
						t.Errorf("Service %s shows gRPC outside, or with another port", s.Name)
					}
				}
			}
		})
	}
}

// TestNetworkPolicy: each port is open for those that need it, and no other.
func TestNetworkPolicy(t *testing.T) {
	o := decode(t, render(t, "scaleway-fr-par", "--values", filepath.Join(chart, "ci", "2-production.yaml")))
	from := map[string][]networkingv1.NetworkPolicyPeer{}
	for _, rule := range o.Policy.Spec.Ingress {
		for _, p := range rule.Ports {
			from[p.Port.String()] = append(from[p.Port.String()], rule.From...)
		}
	}
	for _, p := range o.container(t).Ports {
		if len(from[p.Name]) == 0 {
			t.Errorf("port %s: nobody, or everybody", p.Name)
		}
	}
	for _, port := range []string{"grpc", "metrics"} {
		for _, peer := range from[port] {
			if peer.NamespaceSelector == nil || peer.NamespaceSelector.MatchLabels["kubernetes.io/metadata.name"] == "" || peer.PodSelector == nil {
				t.Errorf("port %s is open to %+v", port, peer)
			}
		}
	}
	var cidrs []string
	for _, peer := range from["channel"] {
		cidrs = append(cidrs, peer.IPBlock.CIDR)
	}
	if !slices.Equal(cidrs, []string{"0.0.0.0/0", "::/0"}) {
		t.Errorf("the channel is open to %q", cidrs)
	}
	if !slices.Equal(o.Services["scaleway-fr-par"].Spec.LoadBalancerSourceRanges, cidrs) {
		t.Errorf("the load balancer lets in %q", o.Services["scaleway-fr-par"].Spec.LoadBalancerSourceRanges)
	}
	if !slices.Equal(o.Policy.Spec.PolicyTypes, []networkingv1.PolicyType{networkingv1.PolicyTypeIngress, networkingv1.PolicyTypeEgress}) {
		t.Errorf("policy types %q", o.Policy.Spec.PolicyTypes)
	}
}

// TestServicesFollowTheEndpoint: the channel's Service listens where agents dial.
func TestServicesFollowTheEndpoint(t *testing.T) {
	production := filepath.Join(chart, "ci", "2-production.yaml")
	for endpoint, port := range map[string]int32{
		"https://channel.fleet.example:9443":          9443,
		"https://channel.fleet.example":               443,
		"https://channel.fleet.example:7443/prefix":   7443,
		"https://[2001:db8::1]":                       443,
		"https://[2001:db8::1]:9443":                  9443,
		"https://scaleway-fr-par.bigfleet.svc:9443":   9443,
		"https://scaleway-fr-par.bigfleet.svc:9443/x": 9443,
	} {
		o := decode(t, render(t, "scaleway-fr-par", "--values", production, "--set", "bootstrap.endpoint="+endpoint))
		s := o.Services["scaleway-fr-par"]
		if s == nil || s.Spec.Ports[0].Port != port || s.Spec.Ports[0].TargetPort != intstr.FromString("channel") {
			t.Errorf("%s: %+v", endpoint, s)
		}
	}
}

// TestServicesSayTheirFamilies: servers with an IPv6 only must reach the channel.
func TestServicesSayTheirFamilies(t *testing.T) {
	o := decode(t, render(t, "scaleway-fr-par", "--values", filepath.Join(chart, "ci", "2-production.yaml"),
		"--set", "bootstrap.service.ipFamilyPolicy=RequireDualStack", "--set", "bootstrap.service.ipFamilies={IPv6,IPv4}", "--set", "grpcService.ipFamilies={IPv6}"))
	channel, grpc := o.Services["scaleway-fr-par"].Spec, o.Services["scaleway-fr-par-grpc"].Spec
	if channel.IPFamilyPolicy == nil || *channel.IPFamilyPolicy != corev1.IPFamilyPolicyRequireDualStack || !slices.Equal(channel.IPFamilies, []corev1.IPFamily{corev1.IPv6Protocol, corev1.IPv4Protocol}) {
		t.Errorf("the channel's Service: %v %q", channel.IPFamilyPolicy, channel.IPFamilies)
	}
	if grpc.IPFamilyPolicy != nil || !slices.Equal(grpc.IPFamilies, []corev1.IPFamily{corev1.IPv6Protocol}) {
		t.Errorf("the gRPC Service: %v %q", grpc.IPFamilyPolicy, grpc.IPFamilies)
	}
	o = decode(t, render(t, "scaleway-fr-par", "--values", filepath.Join(chart, "ci", "3-private.yaml")))
	for name, s := range o.Services {
		if s.Spec.IPFamilyPolicy != nil || len(s.Spec.IPFamilies) > 0 {
			t.Errorf("%s does not leave the families to the cluster", name)
		}
	}
}

// TestValuesAreRefused: by the schema, or since they do not fit together. A
// mistake must not become a running provider that is another than was meant.
func TestValuesAreRefused(t *testing.T) {
	production := filepath.Join(chart, "ci", "2-production.yaml")
	for name, tc := range map[string]struct {
		set  []string
		want []string
	}{
		"two replicas":         {[]string{"replicas=2"}, []string{"replicas", "maximum"}},
		"unknown key":          {[]string{"replicaCount=1"}, []string{"replicaCount"}},
		"unknown nested key":   {[]string{"bootstrap.tls.secret=x"}, []string{"/bootstrap/tls", "secret"}},
		"unknown cloud":        {[]string{"cloud=aws"}, []string{"/cloud", "scaleway"}},
		"unknown offering":     {[]string{"offerings[0].typo=x"}, []string{"/offerings/0", "typo"}},
		"plain endpoint":       {[]string{"bootstrap.endpoint=http://x:9443"}, []string{"/bootstrap/endpoint"}},
		"no port":              {[]string{"bootstrap.endpoint=https://x:0"}, []string{"bootstrap.endpoint: port 0, want"}},
		"port too high":        {[]string{"bootstrap.endpoint=https://x:99999", "bootstrap.service.port=9443"}, []string{"bootstrap.endpoint: port 99999, want"}},
		"nothing behind a key": {[]string{"bootstrap.endpoint=null", "extraArgs=null"}, []string{"bootstrap.endpoint: missing"}},
		"provider's name":      {[]string{"provider=Scaleway_1"}, []string{"/provider"}},
		"secret as argument":   {[]string{"extraArgs[0]=--secret-key=x"}, []string{"extraArgs[0]: --secret-key"}},
		"text for a switch":    {[]string{"tls.mutual=yes"}, []string{"/tls/mutual"}},
		"no network":           {[]string{"networkPolicy.nodeCIDRs=null"}, []string{"networkPolicy.nodeCIDRs: missing"}},
		"identity by no CA":    {[]string{"tls.mutual=false"}, []string{"tls.requireShardIdentity: needs"}},
		"two in a single":      {[]string{"bootstrap.service.ipFamilyPolicy=SingleStack", "bootstrap.service.ipFamilies={IPv6,IPv4}"}, []string{"bootstrap.service.ipFamilies: two"}},
		"unknown family":       {[]string{"bootstrap.service.ipFamilies={IPv5}"}, []string{"/bootstrap/service/ipFamilies"}},
		"other zone":           {[]string{"scaleway.zone=nl-ams-1"}, []string{"offerings: DEV1-S is in zone fr-par-1", "GP1-M is in zone"}},
		"fake of another":      {[]string{"cloud=hetzner", "useFakeBackend=true"}, []string{"there is no fake hetzner"}},
		"agent from no where":  {[]string{"agent.install=apt"}, []string{"agent.apt.uri, agent.apt.key"}},
		"all at once": {[]string{"provider=", "image.repository=", "credentials.secretName=", "bootstrap.endpoint=", "bootstrap.tls.secretName=", "bootstrap.secret.secretName="},
			[]string{"provider: missing", "image.repository: missing", "credentials.secretName: missing", "bootstrap.endpoint: missing", "bootstrap.tls.secretName: missing", "bootstrap.secret.secretName: missing"}},
		"azure without anything": {[]string{"cloud=azure", "credentials.secretName="}, []string{"azure.workloadIdentity.clientId", "azure.location: missing", "azure.subnetId: missing"}},
		"hetzner without SSH":    {[]string{"cloud=hetzner"}, []string{"hetzner.sshKey.secretName: missing"}},
	} {
		t.Run(name, func(t *testing.T) {
			args := []string{"--values", production}
			for _, s := range tc.set {
				args = append(args, "--set", s)
			}
			stdout, stderr, err := helm(t, templateArgs("scaleway-fr-par", args...)...)
			if err == nil {
				t.Fatalf("accepted:\n%s", stdout)
			}
			for _, want := range tc.want {
				if !strings.Contains(stderr, want) {
					t.Errorf("%q is not in:\n%s", want, stderr)
				}
			}
		})
	}
}

// TestNoArguments: a key with nothing behind it takes the chart's own value away.
func TestNoArguments(t *testing.T) {
	production := filepath.Join(chart, "ci", "2-production.yaml")
	pod := decode(t, render(t, "scaleway-fr-par", "--values", production, "--set", "extraArgs=null")).container(t)
	for _, arg := range pod.Args {
		if strings.HasPrefix(arg, "--removal-cap") {
			t.Error(pod.Args)
		}
	}
	if len(pod.Args) == 0 {
		t.Error("no arguments at all")
	}
}

// TestChangedFilesRollThePod: and what does not change does not.
func TestChangedFilesRollThePod(t *testing.T) {
	production := filepath.Join(chart, "ci", "2-production.yaml")
	template := func(set ...string) corev1.PodTemplateSpec {
		args := []string{"--values", production}
		for _, s := range set {
			args = append(args, "--set", s)
		}
		return decode(t, render(t, "scaleway-fr-par", args...)).Deployment.Spec.Template
	}
	before := template()
	if d := cmp.Diff(before, template("bootstrap.service.type=ClusterIP")); d != "" {
		t.Errorf("a change of the Service alone rolls the pod:\n%s", d)
	}
	for _, set := range []string{"offerings[0].count=21", "baseUserData=#cloud-config"} {
		if cmp.Equal(before, template(set)) {
			t.Errorf("%s does not roll the pod", set)
		}
	}
}

// TestChartAndProgramAgreeOnOfferings: the schema knows the fields that the
// documentation of the offerings file lists.
func TestChartAndProgramAgreeOnOfferings(t *testing.T) {
	o := decode(t, render(t, "scaleway-fr-par", "--values", filepath.Join(chart, "ci", "2-production.yaml")))
	const want = `[
  {
    "commercial_type": "DEV1-S",
    "count": 20,
    "resources": {
      "cpu": "1500m",
      "memory": "1Gi"
    },
    "zone": "fr-par-1"
  },`
	if got := o.ConfigMap.Data["offerings.json"]; !strings.HasPrefix(got, want) {
		t.Errorf("offerings.json begins with another offering:\n%s", got)
	}
	var refused []string
	for i, field := range offeringFields(t) {
		set := "offerings[0]." + field + "=" + map[string]string{"count": strconv.Itoa(i + 1), "zone": "fr-par-1", "public_ip": "ipv6"}[field]
		switch field {
		case "resources", "labels":
			set = "offerings[0]." + field + ".a=b"
		case "root_volume":
			set = "offerings[0].root_volume.type=sbs"
		case "private_network_ids", "servers", "tags":
			set = "offerings[0]." + field + "[0]=b"
		case "commercial_type":
			set += "DEV1-S"
		}
		_, stderr, err := helm(t, templateArgs("scaleway-fr-par", "--values", filepath.Join(chart, "ci", "2-production.yaml"), "--set", set)...)
		if err != nil {
			refused = append(refused, set+": "+stderr)
		}
	}
	if refused != nil {
		t.Errorf("documented, and refused by the schema:\n%s", strings.Join(refused, "\n"))
	}
}
