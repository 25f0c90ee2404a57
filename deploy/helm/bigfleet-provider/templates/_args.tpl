{{/* The command line, as a YAML list. Flags at their default are left out where
     the chart has no other. */}}
{{- define "bigfleet.args" -}}
{{- $v := .Values -}}
{{- $args := list (printf "--provider=%s" $v.provider) (printf "--addr=%s" $v.addr) (printf "--metrics-addr=%s" $v.metrics.addr) "--state=/var/lib/bigfleet/state.db" -}}
{{- if $v.adminSocket }}{{ $args = append $args "--admin-socket=/run/bigfleet/admin/socket" }}{{ end -}}
{{- if $v.offerings -}}
  {{- $args = append $args "--offerings=/etc/bigfleet/files/offerings.json" -}}
{{- else -}}
  {{- $args = append $args (printf "--seed-count=%d" (int $v.seedCount)) -}}
{{- end -}}
{{- if $v.baseUserData }}{{ $args = append $args "--base-user-data=/etc/bigfleet/files/user-data" }}{{ end -}}
{{- if $v.useFakeBackend }}{{ $args = append $args "--use-fake-backend" }}{{ end -}}
{{- if eq $v.cloud "scaleway" -}}
  {{- $args = concat $args (list (printf "--zone=%s" $v.scaleway.zone) (printf "--substrate=%s" $v.scaleway.substrate) (printf "--image=%s" $v.scaleway.image)) -}}
  {{- if $v.scaleway.noPublicIP }}{{ $args = append $args "--no-public-ip" }}{{ end -}}
  {{- with $v.scaleway.apiURL }}{{ $args = append $args (printf "--api-url=%s" .) }}{{ end -}}
  {{- if include "bigfleet.channel" . -}}
    {{- $args = concat $args (list
      (printf "--bootstrap-addr=%s" $v.bootstrap.addr)
      (printf "--bootstrap-endpoint=%s" $v.bootstrap.endpoint)
      "--bootstrap-tls-cert=/etc/bigfleet/channel-tls/tls.crt" "--bootstrap-tls-key=/etc/bigfleet/channel-tls/tls.key") -}}
    {{- if $v.bootstrap.tls.pinCA }}{{ $args = append $args "--bootstrap-ca=/etc/bigfleet/channel-tls/ca.crt" }}{{ end -}}
    {{- if eq (toString $v.bootstrap.tls.pinCA) "auto" }}{{ $args = append $args "--bootstrap-ca-optional" }}{{ end -}}
    {{- $args = append $args (printf "--agent-install=%s" $v.agent.install) -}}
    {{- if eq $v.agent.install "channel" -}}
      {{- $args = append $args (printf "--agent-packages=%s" $v.agent.packages.path) -}}
    {{- else if eq $v.agent.install "apt" -}}
      {{- $args = concat $args (list (printf "--agent-apt-uri=%s" $v.agent.apt.uri) (printf "--agent-apt-suite=%s" $v.agent.apt.suite) (printf "--agent-apt-component=%s" $v.agent.apt.component) "--agent-apt-key=/etc/bigfleet/files/apt-key.asc") -}}
    {{- end -}}
  {{- end -}}
{{- else if eq $v.cloud "hetzner" -}}
  {{- $args = concat $args (list (printf "--location=%s" $v.hetzner.location) (printf "--image=%s" $v.hetzner.image) (printf "--ssh-user=%s" $v.hetzner.sshUser) (printf "--ssh-key=/etc/bigfleet/ssh/%s" $v.hetzner.sshKey.secretKey)) -}}
  {{- with $v.hetzner.bootstrapHook }}{{ $args = append $args (printf "--bootstrap-hook=%s" .) }}{{ end -}}
{{- else -}}
  {{- $args = concat $args (list (printf "--location=%s" $v.azure.location) (printf "--subscription-id=%s" $v.azure.subscriptionId) (printf "--resource-group=%s" $v.azure.resourceGroup) (printf "--subnet-id=%s" $v.azure.subnetId) (printf "--image=%s" $v.azure.image)) -}}
  {{- with $v.azure.adminUsername }}{{ $args = append $args (printf "--admin-username=%s" .) }}{{ end -}}
  {{- with $v.azure.sshPublicKey }}{{ $args = append $args (printf "--ssh-public-key=%s" .) }}{{ end -}}
  {{- with $v.azure.bootstrapHook }}{{ $args = append $args (printf "--bootstrap-hook=%s" .) }}{{ end -}}
{{- end -}}
{{- if $v.tls.secretName -}}
  {{- $args = concat $args (list "--tls-cert=/etc/bigfleet/tls/tls.crt" "--tls-key=/etc/bigfleet/tls/tls.key") -}}
  {{- if $v.tls.mutual }}{{ $args = append $args "--tls-ca=/etc/bigfleet/tls/ca.crt" }}{{ end -}}
{{- end -}}
{{- if $v.tls.reload }}{{ $args = append $args "--tls-reload" }}{{ end -}}
{{- if $v.tls.requireShardIdentity }}{{ $args = append $args "--require-shard-identity" }}{{ end -}}
{{- if $v.requireFence }}{{ $args = append $args "--require-fence" }}{{ end -}}
{{- $args = concat $args (list (printf "--reflection=%t" $v.reflection) (printf "--log-format=%s" $v.log.format) (printf "--log-level=%s" $v.log.level)) -}}
{{- concat $args ($v.extraArgs | default list) | toYaml -}}
{{- end }}

{{/* The environment: secrets come this way, and never by the command line. */}}
{{- define "bigfleet.env" -}}
{{- $v := .Values -}}
{{- range include "bigfleet.secrets" . | fromJsonArray -}}
  {{- if eq .value "credentials.secretName" -}}
    {{- $name := .name -}}
    {{- range .keys }}
- name: {{ . }}
  valueFrom:
    secretKeyRef: {name: {{ $name | quote }}, key: {{ . }}}
    {{- end }}
  {{- else if eq .value "bootstrap.secret.secretName" }}
- name: BIGFLEET_BOOTSTRAP_SECRET
  valueFrom:
    secretKeyRef: {name: {{ .name | quote }}, key: {{ first .keys | quote }}}
  {{- $name := .name }}
  {{- range rest .keys }}
- name: BIGFLEET_BOOTSTRAP_SECRET_PREVIOUS
  valueFrom:
    secretKeyRef: {name: {{ $name | quote }}, key: {{ . | quote }}}
  {{- end }}
  {{- end -}}
{{- end -}}
{{- with $v.extraEnv }}
{{ toYaml . }}
{{- end -}}
{{- end }}
