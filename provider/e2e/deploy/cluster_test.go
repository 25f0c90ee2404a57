package deploy

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	release         = "scaleway-fr-par"
	secretsPath     = "/api/v1/namespaces/" + namespace + "/secrets"
	deploymentsPath = "/apis/apps/v1/namespaces/" + namespace + "/deployments"
	claimsPath      = "/api/v1/namespaces/" + namespace + "/persistentvolumeclaims"
	servicesPath    = "/api/v1/namespaces/" + namespace + "/services"
)

// openNamespace makes the namespace under the strictest of the Pod Security
// Standards.
func (c *cluster) openNamespace(t *testing.T) {
	t.Helper()
	c.create(t, "/api/v1/namespaces", &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
		Name: namespace, Labels: map[string]string{"pod-security.kubernetes.io/enforce": "restricted"},
	}})
}

// TestReleaseLifecycle takes a release through what an operator does to it, on a
// real API server.
func TestReleaseLifecycle(t *testing.T) {
	helmPath(t)
	c := startCluster(t)
	c.openNamespace(t)
	// The Prometheus operator's types are not in this cluster.
	values := []string{release, chart, "--values", filepath.Join(chart, "ci", "2-production.yaml"), "--set", "metrics.podMonitor.enabled=false"}
	upgrade := func(more ...string) string {
		return c.mustHelm(t, append(append([]string{"upgrade"}, values...), more...)...)
	}
	deployment := func() appsv1.Deployment {
		d, found := get[appsv1.Deployment](t, c, deploymentsPath+"/"+release)
		if !found {
			t.Fatal("no Deployment")
		}
		return d
	}
	digest := func(d appsv1.Deployment) string { return d.Spec.Template.Annotations["checksum/secrets"] }

	// Before the Secrets.
	notes := c.mustHelm(t, append([]string{"install"}, values...)...)
	for name := range exampleSecrets(t) {
		if !strings.Contains(notes, "  "+name+" with ") {
			t.Errorf("the notes do not name the missing Secret %s:\n%s", name, notes)
		}
	}
	for _, want := range []string{
		"scaleway-fr-par-grpc.bigfleet.svc:9000   (admitted: namespace bigfleet-system)", "https://channel.fleet.example:9443   (admitted: 0.0.0.0/0, ::/0)",
		"service scaleway-fr-par, port 9443 (LoadBalancer)", "helm uninstall removes no server", "bigfleet=scaleway-fr-par any more",
	} {
		if !strings.Contains(notes, want) {
			t.Errorf("the notes do not say %q:\n%s", want, notes)
		}
	}
	first := deployment()
	if digest(first) != "" {
		t.Error("a digest of nothing")
	}

	// With them.
	c.makeSecrets(t)
	if notes = upgrade(); strings.Contains(notes, "MISSING") {
		t.Errorf("the notes miss Secrets that are there:\n%s", notes)
	}
	second := deployment()
	if digest(second) == "" || second.Generation == first.Generation {
		t.Error("Secrets that came do not roll the pod")
	}
	upgrade()
	if again := deployment(); again.Generation != second.Generation {
		t.Error("an upgrade that changes nothing rolls the pod")
	}

	// One that changes.
	secret, _ := get[corev1.Secret](t, c, secretsPath+"/bigfleet-scaleway-creds")
	secret.Data["SCW_SECRET_KEY"] = []byte("33333333-3333-4333-8333-333333333333")
	c.replace(t, secretsPath+"/"+secret.Name, &secret)
	upgrade()
	third := deployment()
	if digest(third) == digest(second) || third.Generation == second.Generation {
		t.Error("a rotated key does not roll the pod")
	}

	// A certificate that does: the process follows it by itself (tls.reload).
	certificates, _ := get[corev1.Secret](t, c, secretsPath+"/bigfleet-scaleway-tls")
	certificate, key := selfSigned(t, "other.example")
	certificates.Data["tls.crt"], certificates.Data["tls.key"] = []byte(certificate), []byte(key)
	c.replace(t, secretsPath+"/"+certificates.Name, &certificates)
	upgrade()
	if same := deployment(); same.Generation != third.Generation {
		t.Error("a certificate that the process follows by itself rolls the pod")
	}
	upgrade("--set", "tls.reload=false")
	if once := deployment(); digest(once) == digest(third) {
		t.Error("a certificate that is read once does not count")
	}
	upgrade()

	// One that loses what the pod needs: told before anything is changed.
	delete(secret.Data, "SCW_ACCESS_KEY")
	secret.ResourceVersion = ""
	c.replace(t, secretsPath+"/"+secret.Name, &secret)
	_, stderr, err := c.helm(t, append([]string{"upgrade"}, values...)...)
	if err == nil || !strings.Contains(stderr, "credentials.secretName: Secret bigfleet-scaleway-creds has no key SCW_ACCESS_KEY") {
		t.Errorf("a Secret without a key: %v\n%s", err, stderr)
	}
	secret.Data["SCW_ACCESS_KEY"] = []byte("SCWXXXXXXXXXXXXXXXXX")
	c.replace(t, secretsPath+"/"+secret.Name, &secret)

	// Two of them: refused. Another image, and back.
	if _, _, err := c.helm(t, append(append([]string{"upgrade"}, values...), "--set", "replicas=2")...); err == nil {
		t.Error("two replicas are accepted")
	}
	upgrade("--set", "image.digest=", "--set", "image.tag=v9", "--set", "offerings[0].count=99")
	if image := deployment().Spec.Template.Spec.Containers[0].Image; image != "registry.example/bigfleet-scaleway:v9" {
		t.Errorf("image %s", image)
	}
	c.mustHelm(t, "rollback", release)
	back := deployment()
	if image := back.Spec.Template.Spec.Containers[0].Image; image != third.Spec.Template.Spec.Containers[0].Image {
		t.Errorf("after the rollback the image is %s", image)
	}
	if files, _ := get[corev1.ConfigMap](t, c, "/api/v1/namespaces/"+namespace+"/configmaps/"+release); strings.Contains(files.Data["offerings.json"], "99") {
		t.Error("after the rollback the offerings are the new ones")
	}

	// The pod it stands for is one that this namespace takes.
	c.create(t, "/api/v1/namespaces/"+namespace+"/pods?dryRun=All&fieldValidation=Strict", &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "one", Labels: back.Spec.Template.Labels}, Spec: back.Spec.Template.Spec,
	})

	// Stopped, and gone but for the state.
	upgrade("--set", "replicas=0")
	if stopped := deployment(); *stopped.Spec.Replicas != 0 {
		t.Errorf("%d replicas", *stopped.Spec.Replicas)
	}
	c.mustHelm(t, "uninstall", release)
	if _, found := get[appsv1.Deployment](t, c, deploymentsPath+"/"+release); found {
		t.Error("the Deployment stays")
	}
	claim, found := get[corev1.PersistentVolumeClaim](t, c, claimsPath+"/"+release)
	if !found || claim.DeletionTimestamp != nil {
		t.Fatal("the claim with the state goes with the release")
	}

	// The same release again takes the state that was left.
	c.mustHelm(t, append([]string{"install"}, values...)...)
	if same, found := get[corev1.PersistentVolumeClaim](t, c, claimsPath+"/"+release); !found || same.UID != claim.UID {
		t.Error("a new installation has another claim")
	}
}

// replace puts an object in the place of an older one.
func (c *cluster) replace(t *testing.T, path string, object any) {
	t.Helper()
	if status, answer, err := c.try(t.Context(), http.MethodPut, path, object); err != nil || status != http.StatusOK {
		t.Errorf("PUT %s: %d %v %s", path, status, err, answer)
	}
}

// makeSecrets makes the Secrets of the example, with content that is of no use.
func (c *cluster) makeSecrets(t *testing.T) {
	t.Helper()
	certificate, key := selfSigned(t, "channel.fleet.example")
	for name, keys := range exampleSecrets(t) {
		s := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: name}, StringData: map[string]string{}}
		for _, k := range keys {
			s.StringData[k] = map[string]string{"tls.crt": certificate, "ca.crt": certificate, "tls.key": key}[k] + "x"
			if strings.HasPrefix(k, "tls.") {
				s.StringData[k] = strings.TrimSuffix(s.StringData[k], "x")
				s.Type = corev1.SecretTypeTLS
			}
		}
		c.create(t, secretsPath, s)
	}
}

// TestServerAcceptsEveryRender has the API server judge each object of each value
// set, with strict validation, without keeping any.
func TestServerAcceptsEveryRender(t *testing.T) {
	helmPath(t)
	c := startCluster(t)
	c.openNamespace(t)
	for _, set := range valueSets(t) {
		o := decode(t, render(t, set.release, "--values", set.file))
		dryRun := func(path string, object any) { c.create(t, path+"?dryRun=All&fieldValidation=Strict", object) }
		dryRun(deploymentsPath, o.Deployment)
		dryRun("/api/v1/namespaces/"+namespace+"/serviceaccounts", o.ServiceAccount)
		for _, s := range o.Services {
			dryRun(servicesPath, s)
		}
		if o.ConfigMap != nil {
			dryRun("/api/v1/namespaces/"+namespace+"/configmaps", o.ConfigMap)
		}
		if o.Claim != nil {
			dryRun(claimsPath, o.Claim)
		}
		if o.Policy != nil {
			dryRun("/apis/networking.k8s.io/v1/namespaces/"+namespace+"/networkpolicies", o.Policy)
		}
		dryRun("/api/v1/namespaces/"+namespace+"/pods", &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: "one", Labels: o.Deployment.Spec.Template.Labels}, Spec: o.Deployment.Spec.Template.Spec,
		})
	}
}
