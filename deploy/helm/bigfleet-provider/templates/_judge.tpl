{{/* Ends the rendering with everything that is wrong at once. What a value may be
     by itself is said by values.schema.json; here is what they need of each other. */}}
{{- define "bigfleet.judge" -}}
{{- $faults := list -}}
{{- $v := .Values -}}
{{- if not $v.provider -}}
  {{- $faults = append $faults "provider: missing; name this provider, such as scaleway-fr-par" -}}
{{- end -}}
{{- if not $v.image.repository -}}
  {{- $faults = append $faults "image.repository: missing; there is no public image, push your own (docs/deploy.md)" -}}
{{- end -}}
{{- if and $v.useFakeBackend (ne $v.cloud "scaleway") -}}
  {{- $faults = append $faults (printf "useFakeBackend: there is no fake %s; set cloud=scaleway" $v.cloud) -}}
{{- end -}}
{{- if not $v.useFakeBackend -}}
  {{- if and (not $v.credentials.secretName) (or (ne $v.cloud "azure") (not $v.azure.workloadIdentity.clientId)) -}}
    {{- $hint := ternary "set azure.workloadIdentity.clientId, or name" "name" (eq $v.cloud "azure") -}}
    {{- $faults = append $faults (printf "credentials.secretName: missing; %s the Secret with the API key (docs/credentials.md), or set useFakeBackend=true for a trial" $hint) -}}
  {{- end -}}
{{- end -}}
{{- if and $v.tls.requireShardIdentity (not (and $v.tls.secretName $v.tls.mutual)) -}}
  {{- $faults = append $faults "tls.requireShardIdentity: needs tls.secretName and tls.mutual: without client certificates nobody could be identified" -}}
{{- end -}}
{{- if include "bigfleet.channel" . -}}
  {{- if not $v.bootstrap.endpoint -}}
    {{- $faults = append $faults (printf "bootstrap.endpoint: missing; the https URL under which new servers reach the channel, such as https://%s.%s.svc:9443 where they resolve the cluster's names" (include "bigfleet.fullname" .) .Release.Namespace) -}}
  {{- end -}}
  {{- $port := include "bigfleet.endpointPort" . | int -}}
  {{- if or (lt $port 1) (gt $port 65535) -}}
    {{- $faults = append $faults (printf "bootstrap.endpoint: port %s, want 1 to 65535" (include "bigfleet.endpointPort" .)) -}}
  {{- end -}}
  {{- if not $v.bootstrap.tls.secretName -}}
    {{- $faults = append $faults "bootstrap.tls.secretName: missing; the channel carries secrets and is always TLS" -}}
  {{- end -}}
  {{- if not (or $v.bootstrap.secret.secretName $v.useFakeBackend) -}}
    {{- $faults = append $faults "bootstrap.secret.secretName: missing; every machine's token derives from the secret (make one with: openssl rand -hex 32)" -}}
  {{- end -}}
  {{- if and (eq $v.agent.install "apt") (not (and $v.agent.apt.uri $v.agent.apt.key)) -}}
    {{- $faults = append $faults "agent.apt.uri, agent.apt.key: both are needed for agent.install=apt" -}}
  {{- end -}}
{{- end -}}
{{- if and $v.networkPolicy.enabled (not $v.networkPolicy.nodeCIDRs) (or (include "bigfleet.channel" .) (eq $v.cloud "hetzner")) -}}
  {{- $faults = append $faults "networkPolicy.nodeCIDRs: missing; no server could reach the provider. Name their networks, such as 172.16.0.0/22; 0.0.0.0/0 if they call from public addresses" -}}
{{- end -}}
{{- if and (eq $v.cloud "hetzner") (not $v.hetzner.sshKey.secretName) -}}
  {{- $faults = append $faults "hetzner.sshKey.secretName: missing; the provider hands over join material by SSH" -}}
{{- end -}}
{{- if eq $v.cloud "azure" -}}
  {{- range $key := list "location" "subscriptionId" "resourceGroup" "subnetId" "image" -}}
    {{- if not (get $v.azure $key) -}}
      {{- $faults = append $faults (printf "azure.%s: missing" $key) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- range $offering := $v.offerings -}}
  {{- if and (eq $v.cloud "scaleway") (ne $offering.zone $v.scaleway.zone) -}}
    {{- $faults = append $faults (printf "offerings: %s is in zone %s, but this provider serves %s (scaleway.zone); run one release a zone" $offering.commercial_type $offering.zone $v.scaleway.zone) -}}
  {{- end -}}
{{- end -}}
{{- range $path, $service := dict "bootstrap.service" $v.bootstrap.service "grpcService" $v.grpcService -}}
  {{- if and (eq $service.ipFamilyPolicy "SingleStack") (gt (len $service.ipFamilies) 1) -}}
    {{- $faults = append $faults (printf "%s.ipFamilies: two, but ipFamilyPolicy is SingleStack; name one, or set PreferDualStack or RequireDualStack" $path) -}}
  {{- end -}}
{{- end -}}
{{- with include "bigfleet.plainSecrets" . }}{{ $faults = append $faults . }}{{ end -}}
{{- with include "bigfleet.secretFaults" . }}{{ $faults = append $faults . }}{{ end -}}
{{- if $faults -}}
  {{- fail (printf "\nthe values cannot be used:\n%s" (join "\n" $faults)) -}}
{{- end -}}
{{- end }}
