{{/* Secrets in plain sight, a line each, none with the value: values are kept in the release, in
     CI's logs and in git, arguments are in the node's process list. The schema leaves this to
     here, since its errors quote what they refuse. */}}
{{- define "bigfleet.plainSecrets" -}}
{{- $v := .Values -}}
{{- $faults := list -}}
{{- $own := dict
  "SCW_ACCESS_KEY" "credentials" "SCW_SECRET_KEY" "credentials" "HCLOUD_TOKEN" "credentials" "AZURE_CLIENT_SECRET" "credentials"
  "BIGFLEET_BOOTSTRAP_SECRET" "bootstrap" "BIGFLEET_BOOTSTRAP_SECRET_PREVIOUS" "bootstrap"
  "access-key" "credentials" "secret-key" "credentials" "token" "credentials" "hcloud-token" "credentials" "client-secret" "credentials"
  "bootstrap-secret" "bootstrap" "bootstrap-secret-previous" "bootstrap" -}}
{{- $advice := dict
  "credentials" "put it into the Secret that credentials.secretName names (docs/credentials.md)"
  "bootstrap" "put it into the Secret that bootstrap.secret.secretName names, under bootstrap.secret.secretKey or previousSecretKey (docs/credentials.md)"
  "" "put it into a Secret of your own, and name that in extraEnv by valueFrom.secretKeyRef" -}}

{{- range $i, $arg := $v.extraArgs -}}
  {{- if not (regexMatch "^--[a-z]" $arg) -}}
    {{- $faults = append $faults (printf "extraArgs[%d]: no flag; write --NAME=VALUE as one element" $i) -}}
  {{- else -}}
    {{- $flag := regexFind "^--[a-z0-9-]+" $arg | trimPrefix "--" -}}
    {{- if or (hasKey $own $flag) (and (ne $flag "allow-random-secret") (regexMatch "(^|-)(secret|secret-key|access-key|api-key|private-key|token|password|passphrase)$" $flag)) -}}
      {{- $faults = append $faults (printf "extraArgs[%d]: --%s: a secret is no argument, which everybody on the node can read; %s" $i $flag (get $advice (get $own $flag))) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}

{{- range $i, $e := $v.extraEnv -}}
  {{- $name := upper $e.name -}}
  {{- $secret := or (hasKey $own $name) (and
    (regexMatch "(SECRET|TOKEN|PASSWORD|PASSWD|PASSPHRASE|CREDENTIALS?|PRIVATE_?KEY|ACCESS_?KEY|API_?KEY|OTLP_([A-Z]+_)?HEADERS)" $name)
    (not (regexMatch "_(FILE|PATH|DIR|URL|URI|ENDPOINT|ID|NAME)$" $name))) -}}
  {{- if $secret -}}
    {{- $from := $e.valueFrom | default dict -}}
    {{- if or (get $e "value") (hasKey $from "configMapKeyRef") -}}
      {{- $faults = append $faults (printf "extraEnv[%d]: %s: a secret in plain text; %s" $i $e.name (get $advice (get $own $name))) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}

{{- range $path, $name := dict "credentials.secretName" $v.credentials.secretName "bootstrap.secret.secretName" $v.bootstrap.secret.secretName "bootstrap.secret.secretKey" $v.bootstrap.secret.secretKey "bootstrap.secret.previousSecretKey" $v.bootstrap.secret.previousSecretKey -}}
  {{- if regexMatch "^([0-9a-f]{32,}|[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12})$" ($name | default "" | lower) -}}
    {{- $faults = append $faults (printf "%s: looks like a secret itself; name the Secret, or the key in it, that holds it (docs/credentials.md)" $path) -}}
  {{- end -}}
{{- end -}}

{{- range include "bigfleet.leaves" (dict "path" "" "value" (omit $v "global")) | splitList "\x00" -}}
  {{- $leaf := splitn "\x01" 2 . -}}
  {{- if regexMatch "-----BEGIN [A-Z0-9 ]*PRIVATE KEY( BLOCK)?-----" ($leaf._1 | default "") -}}
    {{- $faults = append $faults (printf "%s: has a private key; keys come from Secrets (docs/credentials.md)" $leaf._0) -}}
  {{- end -}}
  {{- if regexMatch "(^|[^A-Z0-9])SCW[A-Z0-9]{17}($|[^A-Z0-9])" ($leaf._1 | default "") -}}
    {{- $faults = append $faults (printf "%s: has a Scaleway access key; %s" $leaf._0 (get $advice "credentials")) -}}
  {{- end -}}
  {{- if regexMatch "[A-Za-z][A-Za-z0-9+.-]*://[^/?#\\s:@\"']*:[^/?#\\s@\"']+@" ($leaf._1 | default "") -}}
    {{- $faults = append $faults (printf "%s: has a URL with a password; take it out, or %s" $leaf._0 (get $advice "")) -}}
  {{- end -}}
{{- end -}}
{{- $faults | uniq | join "\n" -}}
{{- end }}

{{/* Every text below a value, each as its path, \x01, the text; \x00 in between. */}}
{{- define "bigfleet.leaves" -}}
{{- $leaves := list -}}
{{- if kindIs "map" .value -}}
  {{- range $key, $value := .value -}}
    {{- $leaves = append $leaves (include "bigfleet.leaves" (dict "path" (printf "%s.%s" $.path $key | trimPrefix ".") "value" $value)) -}}
  {{- end -}}
{{- else if kindIs "slice" .value -}}
  {{- range $i, $value := .value -}}
    {{- $leaves = append $leaves (include "bigfleet.leaves" (dict "path" (printf "%s[%d]" $.path $i) "value" $value)) -}}
  {{- end -}}
{{- else if kindIs "string" .value -}}
  {{- $leaves = append $leaves (printf "%s\x01%s" .path .value) -}}
{{- end -}}
{{- without $leaves "" | join "\x00" -}}
{{- end }}
