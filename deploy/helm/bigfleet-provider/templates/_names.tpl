{{/* The name of everything; the release's own, so that a release scaleway-fr-par
     is reached at scaleway-fr-par.NAMESPACE.svc. Room is left for suffixes. */}}
{{- define "bigfleet.fullname" -}}
{{- .Values.fullnameOverride | default .Release.Name | trunc 50 | trimSuffix "-" -}}
{{- end }}

{{- define "bigfleet.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "bigfleet.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 }}
{{ include "bigfleet.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | replace "+" "_" | quote }}
app.kubernetes.io/component: provider
app.kubernetes.io/part-of: bigfleet
app.kubernetes.io/managed-by: {{ .Release.Service }}
bigfleet/cloud: {{ .Values.cloud }}
{{- end }}

{{- define "bigfleet.serviceAccount" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "bigfleet.fullname" .) -}}
{{- else -}}
{{- .Values.serviceAccount.name | default "default" -}}
{{- end -}}
{{- end }}

{{- define "bigfleet.image" -}}
{{- .Values.image.repository -}}
{{- if .Values.image.digest }}@{{ .Values.image.digest }}{{ else }}:{{ .Values.image.tag | default .Chart.AppVersion }}{{ end -}}
{{- end }}

{{/* The port of an address such as ":9000" or "0.0.0.0:9000". */}}
{{- define "bigfleet.port" -}}
{{- . | splitList ":" | last -}}
{{- end }}

{{/* The port in the URL under which servers reach the channel. */}}
{{- define "bigfleet.endpointPort" -}}
{{- $host := (urlParse (.Values.bootstrap.endpoint | default "")).host -}}
{{- regexFind ":[0-9]+$" $host | trimPrefix ":" | default "443" -}}
{{- end }}

{{/* The port under which servers dial the channel. */}}
{{- define "bigfleet.channelPort" -}}
{{- .Values.bootstrap.service.port | default (include "bigfleet.endpointPort" .) | int -}}
{{- end }}

{{/* "true" where agents dial the provider. */}}
{{- define "bigfleet.channel" -}}
{{- if and (eq .Values.cloud "scaleway") (or (not .Values.useFakeBackend) .Values.bootstrap.tls.secretName) }}true{{ end -}}
{{- end }}

{{/* "true" where there is anything to put into the ConfigMap. */}}
{{- define "bigfleet.files" -}}
{{- if or .Values.offerings .Values.baseUserData (and (include "bigfleet.channel" .) (eq .Values.agent.install "apt")) }}true{{ end -}}
{{- end }}
