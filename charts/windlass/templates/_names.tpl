{{/* Names, labels and the image. */}}

{{- define "windlass.name" -}}
{{- .Values.nameOverride | default .Chart.Name | trunc 63 | trimSuffix "-" -}}
{{- end }}

{{/*
"windlass" for a release of that name, else RELEASE-windlass. A release may be called team.windlass or 123, a Service
may not: no dots, and a letter first. Suffixes are added, so it stays short; a truncated name ends with a hash, or two
releases with the same prefix would share their objects.
*/}}
{{- define "windlass.fullname" -}}
{{- $name := include "windlass.name" . -}}
{{- $full := printf "%s-%s" .Release.Name $name -}}
{{- if .Values.fullnameOverride -}}
{{- $full = .Values.fullnameOverride -}}
{{- else if contains $name .Release.Name -}}
{{- $full = .Release.Name -}}
{{- end -}}
{{- $full = replace "." "-" $full -}}
{{- if regexMatch "^[0-9]" $full -}}
{{- $full = printf "windlass-%s" $full -}}
{{- end -}}
{{- if gt (len $full) 40 -}}
{{- $full = printf "%s-%s" (trunc 31 $full | trimAll "-") (sha256sum $full | trunc 8) -}}
{{- end -}}
{{- $full | trimAll "-" -}}
{{- end }}

{{- define "windlass.selectorLabels" -}}
app.kubernetes.io/name: {{ include "windlass.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end }}

{{- define "windlass.labels" -}}
{{ include "windlass.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- end }}

{{/* The labels of the Deployment itself, which scope.selector may have to match. */}}
{{- define "windlass.deploymentLabels" -}}
{{ include "windlass.labels" . }}
app.kubernetes.io/component: controller-manager
{{- with .Values.deploymentLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- define "windlass.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- .Values.serviceAccount.name | default (include "windlass.fullname" .) -}}
{{- else -}}
{{- required "serviceAccount.create=false needs serviceAccount.name, the name of an existing ServiceAccount" .Values.serviceAccount.name -}}
{{- end -}}
{{- end }}

{{- define "windlass.subject" -}}
- kind: ServiceAccount
  name: {{ include "windlass.serviceAccountName" . | quote }}
  namespace: {{ .Release.Namespace | quote }}
{{- end }}

{{/* The reference of `image` (repository, tag, digest), with `version` where there is neither tag nor digest. */}}
{{- define "windlass.image" -}}
{{- if .image.digest -}}
{{- printf "%s@%s" .image.repository .image.digest -}}
{{- else -}}
{{- printf "%s:%s" .image.repository (.image.tag | default .version) -}}
{{- end -}}
{{- end }}

{{/* Of the releases without a scope only one may lead, whatever their names, so they share one Lease. */}}
{{- define "windlass.leaseName" -}}
{{- if .Values.leaderElection.resourceName -}}
{{- .Values.leaderElection.resourceName -}}
{{- else if or .Values.scope.namespace .Values.scope.selector -}}
{{- include "windlass.fullname" . -}}
{{- else -}}
windlass
{{- end -}}
{{- end }}

{{/* The namespace of the Lease is therefore the same for all of them, whatever their own namespaces. */}}
{{- define "windlass.leaseNamespace" -}}
{{- if .Values.leaderElection.resourceNamespace -}}
{{- .Values.leaderElection.resourceNamespace -}}
{{- else if or .Values.scope.namespace .Values.scope.selector -}}
{{- .Release.Namespace -}}
{{- else -}}
kube-system
{{- end -}}
{{- end }}
