package deploy

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

const (
	chart     = "../../../deploy/helm/bigfleet-provider"
	namespace = "bigfleet"
)

// tools is the folder of pinned tools that make fills.
func tools() string {
	home, err := os.UserHomeDir()
	if err != nil {
		home = "/"
	}
	return cmp.Or(os.Getenv("TOOLS"), filepath.Join(home, ".cache", "bigfleet-tools"))
}

// helmPath is the pinned helm; without it there is nothing to test with.
func helmPath(t *testing.T) string {
	t.Helper()
	path := filepath.Join(tools(), "helm")
	if _, err := os.Stat(path); err != nil {
		t.Skipf("no helm, so the chart is not tested; run: make tools (%v)", err)
	}
	return path
}

// helm runs a command and returns what it printed, and whether it succeeded.
func helm(t *testing.T, args ...string) (stdout, stderr string, err error) {
	t.Helper()
	return helmWith(t.Context(), helmPath(t), t.TempDir(), args...)
}

// helmWith keeps helm to folders of its own: an operator's repositories,
// plugins and clusters are not part of a test.
func helmWith(ctx context.Context, path, home string, args ...string) (stdout, stderr string, err error) {
	cmd := exec.CommandContext(ctx, path, args...)
	cmd.Env = append(os.Environ(), "HOME="+home, "HELM_CACHE_HOME="+home, "HELM_CONFIG_HOME="+home, "HELM_DATA_HOME="+home)
	if !strings.Contains(strings.Join(args, " "), "--kubeconfig") {
		cmd.Env = append(cmd.Env, "KUBECONFIG="+filepath.Join(home, "none"))
	}
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	return out.String(), errs.String(), err
}

// render is helm template with fixed names, so that it can be compared.
func render(t *testing.T, release string, args ...string) string {
	t.Helper()
	stdout, stderr, err := helm(t, templateArgs(release, args...)...)
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr)
	}
	return stdout
}

func templateArgs(release string, args ...string) []string {
	return append([]string{"template", release, chart, "--namespace", namespace, "--kube-version", "1.37.2"}, args...)
}

// valueSet is one of the files in the chart's ci folder.
type valueSet struct {
	name, file, release string
}

func valueSets(t *testing.T) []valueSet {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(chart, "ci", "*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no value sets: %v", err)
	}
	var sets []valueSet
	for _, file := range files {
		var values struct {
			Provider string `json:"provider"`
		}
		content, err := os.ReadFile(file)
		if err == nil {
			err = yaml.Unmarshal(content, &values)
		}
		if err != nil {
			t.Fatal(err)
		}
		// As the documentation does, a release is named after its provider.
		sets = append(sets, valueSet{strings.TrimSuffix(filepath.Base(file), ".yaml"), file, values.Provider})
	}
	return sets
}

// podMonitor is the part of the Prometheus operator's type that the chart uses.
type podMonitor struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		Selector            metav1.LabelSelector `json:"selector"`
		PodMetricsEndpoints []struct {
			Port     string `json:"port"`
			Path     string `json:"path"`
			Interval string `json:"interval"`
		} `json:"podMetricsEndpoints"`
	} `json:"spec"`
}

// objects are the decoded documents of a release.
type objects struct {
	Deployment     *appsv1.Deployment
	ServiceAccount *corev1.ServiceAccount
	ConfigMap      *corev1.ConfigMap
	Claim          *corev1.PersistentVolumeClaim
	Policy         *networkingv1.NetworkPolicy
	Monitor        *podMonitor
	Services       map[string]*corev1.Service
}

// decode reads every document into its Kubernetes type and refuses what the type
// does not know, as the API server would with strict validation.
func decode(t *testing.T, documents string) objects {
	t.Helper()
	o := objects{Services: map[string]*corev1.Service{}}
	for document := range strings.SplitSeq(documents, "\n---\n") {
		var meta struct {
			metav1.TypeMeta `json:",inline"`
		}
		if err := yaml.Unmarshal([]byte(document), &meta); err != nil {
			t.Fatalf("%v in\n%s", err, document)
		}
		if meta.Kind == "" {
			continue // comments only
		}
		var err error
		switch meta.APIVersion + " " + meta.Kind {
		case "apps/v1 Deployment":
			o.Deployment, err = strict[appsv1.Deployment](document)
		case "v1 ServiceAccount":
			o.ServiceAccount, err = strict[corev1.ServiceAccount](document)
		case "v1 ConfigMap":
			o.ConfigMap, err = strict[corev1.ConfigMap](document)
		case "v1 PersistentVolumeClaim":
			o.Claim, err = strict[corev1.PersistentVolumeClaim](document)
		case "networking.k8s.io/v1 NetworkPolicy":
			o.Policy, err = strict[networkingv1.NetworkPolicy](document)
		case "monitoring.coreos.com/v1 PodMonitor":
			o.Monitor, err = strict[podMonitor](document)
		case "v1 Service":
			var s *corev1.Service
			if s, err = strict[corev1.Service](document); err == nil {
				o.Services[s.Name] = s
			}
		default:
			err = errors.New("a kind that no test knows")
		}
		if err != nil {
			t.Fatalf("%s: %v in\n%s", meta.Kind, err, document)
		}
	}
	return o
}

// strict decodes one document; unknown and repeated fields are errors.
func strict[T any](document string) (*T, error) {
	var out T
	err := yaml.UnmarshalStrict([]byte(document), &out)
	return &out, err
}

// container is the only one of the pod.
func (o objects) container(t *testing.T) corev1.Container {
	t.Helper()
	if n := len(o.Deployment.Spec.Template.Spec.Containers); n != 1 {
		t.Fatalf("%d containers", n)
	}
	return o.Deployment.Spec.Template.Spec.Containers[0]
}
