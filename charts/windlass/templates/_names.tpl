{{/* Names, labels and the image. */}}

{{- define "windlass.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end }}

{{/* "windlass" for a release of that name, else RELEASE-windlass. Suffixes are added, so it stays short. */}}
{{- define "windlass.fullname" -}}
{{- $name := include "windlass.name" . -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{- define "windlass.selectorLabels" -}}
app.kubernetes.io/name: {{ include "windlass.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "windlass.labels" -}}
{{ include "windlass.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{- define "windlass.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "windlass.fullname" .) -}}
{{- else -}}
{{- required "serviceAccount.name is needed where serviceAccount.create is false" .Values.serviceAccount.name -}}
{{- end -}}
{{- end }}

{{- define "windlass.subject" -}}
- kind: ServiceAccount
  name: {{ include "windlass.serviceAccountName" . }}
  namespace: {{ .Release.Namespace }}
{{- end }}

{{/* Of `image` (repository, tag, digest), with `version` where there is neither tag nor digest. */}}
{{- define "windlass.image" -}}
{{- if .image.digest -}}
{{- printf "%s@%s" .image.repository .image.digest -}}
{{- else -}}
{{- printf "%s:%s" .image.repository (.image.tag | default .version) -}}
{{- end -}}
{{- end }}

{{/* Releases without a scope must take turns whatever their names, so they share one Lease. */}}
{{- define "windlass.leaseName" -}}
{{- if .Values.leaderElection.resourceName -}}
{{- .Values.leaderElection.resourceName -}}
{{- else if or .Values.scope.namespace .Values.scope.selector -}}
{{- include "windlass.fullname" . -}}
{{- else -}}
windlass
{{- end -}}
{{- end }}
