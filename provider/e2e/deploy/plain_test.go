package deploy

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// TestSecretsInValuesAreRefused: with the path of the value and where it belongs,
// and without the value itself, which would be in the log of whatever runs helm.
func TestSecretsInValuesAreRefused(t *testing.T) {
	type of = map[string]any
	const (
		plain       = "hunter2hunter2"
		access      = "SCW0123456789ABCDEFG"
		uuid        = "0a1b2c3d-0a1b-4a1b-8a1b-0a1b2c3d4e5f"
		credentials = "credentials.secretName"
		bootstrap   = "bootstrap.secret.secretName"
		own         = "valueFrom.secretKeyRef"
	)
	args := func(args ...string) of { return of{"extraArgs": args} }
	env := func(name, value string) of { return of{"extraEnv": []of{{"name": name, "value": value}}} }
	ref := func(kind, name string) of {
		return of{"extraEnv": []of{{"name": name, "valueFrom": of{kind: of{"name": "other", "key": "k"}}}}}
	}
	for name, tc := range map[string]struct {
		values of
		want   []string // nil: accepted
	}{
		"secret key":               {args("--secret-key=" + plain), []string{"extraArgs[0]: --secret-key", credentials}},
		"access key":               {args("--removal-cap=2", "--access-key="+plain), []string{"extraArgs[1]: --access-key", credentials}},
		"bootstrap secret":         {args("--bootstrap-secret=" + plain), []string{"extraArgs[0]: --bootstrap-secret", bootstrap}},
		"the one before":           {args("--bootstrap-secret-previous=" + plain), []string{"extraArgs[0]: --bootstrap-secret-previous", bootstrap, "previousSecretKey"}},
		"spaces":                   {args("--bootstrap-secret = " + plain), []string{"extraArgs[0]: --bootstrap-secret", bootstrap}},
		"in the next element":      {args("--secret-key", plain), []string{"extraArgs[0]: --secret-key", "extraArgs[1]", credentials}},
		"alone":                    {args(plain), []string{"extraArgs[0]"}},
		"Hetzner's":                {args("--token=" + plain), []string{"extraArgs[0]: --token", credentials}},
		"another cloud's":          {args("--client-secret=" + plain), []string{"extraArgs[0]: --client-secret", credentials}},
		"a password":               {args("--proxy-password=" + plain), []string{"extraArgs[0]: --proxy-password", own}},
		"a URL's":                  {args("--api-url=https://me:" + plain + "@api.example"), []string{"extraArgs[0]"}},
		"variable":                 {env("SCW_SECRET_KEY", plain), []string{"extraEnv[0]: SCW_SECRET_KEY", credentials}},
		"variable of the id":       {env("SCW_ACCESS_KEY", access), []string{"extraEnv[0]: SCW_ACCESS_KEY", credentials}},
		"variable of bootstrap":    {env("BIGFLEET_BOOTSTRAP_SECRET", plain), []string{"extraEnv[0]: BIGFLEET_BOOTSTRAP_SECRET", bootstrap}},
		"variable of the previous": {env("BIGFLEET_BOOTSTRAP_SECRET_PREVIOUS", plain), []string{"extraEnv[0]", bootstrap}},
		"variable of a trace":      {env("OTEL_EXPORTER_OTLP_HEADERS", "authorization="+plain), []string{"extraEnv[0]: OTEL_EXPORTER_OTLP_HEADERS", own}},
		"variable of a proxy":      {env("HTTPS_PROXY", "http://me:"+plain+"@proxy:3128"), []string{"extraEnv[0].value", own}},
		"under another name":       {env("NOTE", access), []string{"extraEnv[0].value", credentials}},
		"from a ConfigMap":         {ref("configMapKeyRef", "SCW_SECRET_KEY"), []string{"extraEnv[0]: SCW_SECRET_KEY", credentials}},
		"in place of its Secret":   {of{"credentials": of{"secretName": uuid}}, []string{credentials + ": looks like"}},
		"in place of the key":      {of{"bootstrap": of{"secret": of{"secretKey": strings.Repeat("0a", 32)}}}, []string{"bootstrap.secret.secretKey: looks like"}},
		"a private key":            {of{"baseUserData": "#cloud-config\nwrite_files:\n- content: |\n    -----BEGIN OPENSSH PRIVATE KEY-----\n    " + plain}, []string{"baseUserData", "private key"}},
		"in annotations":           {of{"podAnnotations": of{"note": "key " + access + "."}}, []string{"podAnnotations.note", credentials}},
		"a repository's":           {of{"agent": of{"apt": of{"uri": "https://me:" + plain + "@apt.example"}}}, []string{"agent.apt.uri"}},

		"of a Secret":           {ref("secretKeyRef", "SCW_SECRET_KEY"), nil},
		"a file":                {env("SCW_SECRET_KEY_FILE", "/run/secrets/key"), nil},
		"a token's file":        {env("AZURE_FEDERATED_TOKEN_FILE", "/var/run/token"), nil},
		"a trace's address":     {env("OTEL_EXPORTER_OTLP_ENDPOINT", "http://collector:4317"), nil},
		"a proxy":               {env("HTTPS_PROXY", "http://proxy:3128"), nil},
		"a switch":              {args("--allow-random-secret", "--ssh-keys="+uuid), nil},
		"a project":             {args("--project-id=" + uuid), nil},
		"a parent's global one": {of{"global": of{"note": access}}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			content, err := yaml.Marshal(tc.values)
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(t.TempDir(), "values.yaml")
			if err := os.WriteFile(file, content, 0o600); err != nil {
				t.Fatal(err)
			}
			stdout, stderr, err := helm(t, templateArgs("scaleway-fr-par", "--values", filepath.Join(chart, "ci", "2-production.yaml"), "--values", file)...)
			if tc.want == nil {
				if err != nil {
					t.Errorf("refused:\n%s", stderr)
				}
				return
			}
			if err == nil {
				t.Fatalf("accepted:\n%s", stdout)
			}
			for _, want := range tc.want {
				if !strings.Contains(stderr, want) {
					t.Errorf("%q is not in:\n%s", want, stderr)
				}
			}
			for _, secret := range []string{plain, access, uuid} {
				if strings.Contains(stderr, secret) {
					t.Errorf("the error shows the secret:\n%s", stderr)
				}
			}
		})
	}
}
