{{/* The Secrets that the pod uses, as JSON: the value that names each, its name,
     and the keys that must be in it. */}}
{{- define "bigfleet.secrets" -}}
{{- $all := list -}}
{{- with .Values.credentials.secretName -}}
  {{- $keys := dict
    "scaleway" (list "SCW_ACCESS_KEY" "SCW_SECRET_KEY" "SCW_DEFAULT_PROJECT_ID")
    "hetzner" (list "HCLOUD_TOKEN")
    "azure" (list "AZURE_TENANT_ID" "AZURE_CLIENT_ID" "AZURE_CLIENT_SECRET") -}}
  {{- if not $.Values.useFakeBackend -}}
    {{- $all = append $all (dict "value" "credentials.secretName" "name" . "keys" (get $keys $.Values.cloud)) -}}
  {{- end -}}
{{- end -}}
{{- with .Values.tls.secretName -}}
  {{- $keys := list "tls.crt" "tls.key" -}}
  {{- if $.Values.tls.mutual }}{{ $keys = append $keys "ca.crt" }}{{ end -}}
  {{- $all = append $all (dict "value" "tls.secretName" "name" . "keys" $keys) -}}
{{- end -}}
{{- if include "bigfleet.channel" . -}}
  {{- with .Values.bootstrap.tls.secretName -}}
    {{- $keys := list "tls.crt" "tls.key" -}}
    {{- if eq (toString $.Values.bootstrap.tls.pinCA) "true" }}{{ $keys = append $keys "ca.crt" }}{{ end -}}
    {{- $all = append $all (dict "value" "bootstrap.tls.secretName" "name" . "keys" $keys) -}}
  {{- end -}}
  {{- with .Values.bootstrap.secret -}}
    {{- if .secretName -}}
      {{- $keys := list .secretKey -}}
      {{- with .previousSecretKey }}{{ $keys = append $keys . }}{{ end -}}
      {{- $all = append $all (dict "value" "bootstrap.secret.secretName" "name" .secretName "keys" $keys) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- if eq .Values.cloud "hetzner" -}}
  {{- with .Values.hetzner.sshKey -}}
    {{- if .secretName -}}
      {{- $all = append $all (dict "value" "hetzner.sshKey.secretName" "name" .secretName "keys" (list .secretKey)) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- $all | toJson -}}
{{- end }}

{{/* Those of them that are read once, at start. */}}
{{- define "bigfleet.secretsReadOnce" -}}
{{- $once := list -}}
{{- range include "bigfleet.secrets" . | fromJsonArray -}}
  {{- if not (and $.Values.tls.reload (has "tls.crt" .keys)) }}{{ $once = append $once . }}{{ end -}}
{{- end -}}
{{- $once | toJson -}}
{{- end }}

{{/* A digest of what the Secrets that are read once hold now: nothing where they cannot be read, as
     in helm template. Their content has far too much entropy to be guessed from it. */}}
{{- define "bigfleet.secretsDigest" -}}
{{- if .Values.rotation.lookup -}}
  {{- $found := list -}}
  {{- range include "bigfleet.secretsReadOnce" . | fromJsonArray -}}
    {{- with lookup "v1" "Secret" $.Release.Namespace .name -}}
      {{- $found = append $found (dict "name" .metadata.name "data" .data) -}}
    {{- end -}}
  {{- end -}}
  {{- if $found }}{{ $found | toJson | sha256sum }}{{ end -}}
{{- end -}}
{{- end }}

{{/* What is wrong with the Secrets that can be read, a line each. */}}
{{- define "bigfleet.secretFaults" -}}
{{- $faults := list -}}
{{- if .Values.rotation.lookup -}}
  {{- range $ref := include "bigfleet.secrets" . | fromJsonArray -}}
    {{- with lookup "v1" "Secret" $.Release.Namespace $ref.name -}}
      {{- $have := keys (.data | default dict) -}}
      {{- range $key := $ref.keys -}}
        {{- if not (has $key $have) -}}
          {{- $hint := "" -}}
          {{- if and (eq $key "ca.crt") (eq $ref.value "tls.secretName") }}{{ $hint = "; add it, or set tls.mutual=false to serve callers without a certificate" }}{{ end -}}
          {{- if and (eq $key "ca.crt") (eq $ref.value "bootstrap.tls.secretName") }}{{ $hint = "; add it, or set bootstrap.tls.pinCA=auto to have agents pin the certificate itself" }}{{ end -}}
          {{- $faults = append $faults (printf "%s: Secret %s has no key %s%s" $ref.value $ref.name $key $hint) -}}
        {{- end -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- join "\n" $faults -}}
{{- end }}

{{/* Names of the Secrets that are read once, each once. */}}
{{- define "bigfleet.secretNames" -}}
{{- $names := list -}}
{{- range include "bigfleet.secretsReadOnce" . | fromJsonArray }}{{ $names = append $names .name }}{{ end -}}
{{- $names | uniq | sortAlpha | join "," -}}
{{- end }}
