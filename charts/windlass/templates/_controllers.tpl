{{/*
Which controllers run, here and in a kube-controller-manager. Both parse --controllers alike: the first entry that
is the name, or the name after a '-', decides; otherwise '*' does.
*/}}

{{/* "true" if the list `controllers` enables the controller `name`; '*' does not if it is `offByDefault`. */}}
{{- define "windlass.runs" -}}
{{- $short := trimSuffix "-controller" .name -}}
{{- $answer := "" -}}
{{- range .controllers -}}
{{- if not $answer -}}
{{- if has . (list $.name $short) -}}
{{- $answer = "true" -}}
{{- else if has . (list (printf "-%s" $.name) (printf "-%s" $short)) -}}
{{- $answer = "false" -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if not $answer -}}
{{- $answer = and (has "*" .controllers) (not .offByDefault) | ternary "true" "false" -}}
{{- end -}}
{{- $answer -}}
{{- end }}

{{/* The controllers of this release, separated by commas. */}}
{{- define "windlass.running" -}}
{{- $running := list -}}
{{- $off := list "garbage-collector-controller" "namespace-controller" "serviceaccount-controller" "root-ca-certificate-publisher-controller" "persistentvolumeclaim-protection-controller" "persistentvolume-protection-controller" "clusterrole-aggregation-controller" "pod-garbage-collector-controller" "endpointslice-controller" "endpoints-controller" "endpointslice-mirroring-controller" "disruption-controller" "resourcequota-controller" "node-lifecycle-controller" "taint-eviction-controller" "rollingupdate-controller" -}}
{{- range list "deployment-controller" "replicaset-controller" "replicationcontroller-controller" "daemonset-controller" "statefulset-controller" "job-controller" "cronjob-controller" "ttl-after-finished-controller" "garbage-collector-controller" "namespace-controller" "serviceaccount-controller" "root-ca-certificate-publisher-controller" "persistentvolumeclaim-protection-controller" "persistentvolume-protection-controller" "clusterrole-aggregation-controller" "pod-garbage-collector-controller" "endpointslice-controller" "endpoints-controller" "endpointslice-mirroring-controller" "disruption-controller" "resourcequota-controller" "node-lifecycle-controller" "taint-eviction-controller" "rollingupdate-controller" -}}
{{- $offByDefault := has . $off -}}
{{- if eq "true" (include "windlass.runs" (dict "name" . "controllers" $.Values.controllers "offByDefault" $offByDefault)) -}}
{{- if and $offByDefault $.Values.scope.namespace (not (has . (list "garbage-collector-controller" "endpointslice-controller" "endpoints-controller" "endpointslice-mirroring-controller" "disruption-controller" "resourcequota-controller" "rollingupdate-controller"))) -}}
{{- fail (printf "controllers: %s needs all namespaces; leave it out, or leave scope.namespace empty" .) -}}
{{- end -}}
{{- $running = append $running . -}}
{{- end -}}
{{- end -}}
{{- join "," $running -}}
{{- end }}

{{/*
The kind of the bootstrap, which must be one that this release leaves to kube-controller-manager, or needs no controller.
The pod of a StatefulSet keeps its name, and nothing replaces a bare pod once it is deleted; so a Job comes first, but
without both a StatefulSet does, as before Windlass ran Jobs.
*/}}
{{- define "windlass.bootstrapKind" -}}
{{- $running := splitList "," (include "windlass.running" .) -}}
{{- if not (has "statefulset-controller" $running) -}}
StatefulSet
{{- else if has "job-controller" $running -}}
Pod
{{- else -}}
Job
{{- end -}}
{{- end }}

{{/*
The --controllers entries that disable the controllers of this release in a kube-controller-manager, which does not know
all of them.
*/}}
{{- define "windlass.switchOff" -}}
{{- $without := list -}}
{{- range splitList "," (include "windlass.running" .) -}}
{{- if ne . "rollingupdate-controller" -}}
{{- $without = append $without (printf "-%s" .) -}}
{{- end -}}
{{- end -}}
{{- join "," $without -}}
{{- end }}

{{/*
The kube-controller-managers that run as pods: JSON with `seen`, their number, and `clashes`, a sentence for each that
runs a controller of this release. A managed control plane shows none, and k3s and k0s run theirs outside of any pod.
The label is kubeadm's or kops', and an older kops has all flags in one shell command.
*/}}
{{- define "windlass.preflight" -}}
{{- $seen := 0 -}}
{{- $clashes := list -}}
{{- range dig "items" list (lookup "v1" "Pod" "kube-system" "") -}}
{{- $labels := dig "metadata" "labels" dict . -}}
{{- if has "kube-controller-manager" (list (dig "component" "" $labels) (dig "k8s-app" "" $labels)) -}}
{{- $seen = add1 $seen -}}
{{- $controllers := list -}}
{{- range .spec.containers -}}
{{- $isNext := false -}}
{{- range concat (dig "command" list .) (dig "args" list .) | join " " | splitList " " -}}
{{- if $isNext -}}
{{- $controllers = concat $controllers (splitList "," .) -}}
{{- $isNext = false -}}
{{- else if hasPrefix "--controllers=" . -}}
{{- $controllers = concat $controllers (splitList "," (trimPrefix "--controllers=" .)) -}}
{{- else if eq "--controllers" . -}}
{{- $isNext = true -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- $controllers = $controllers | default (list "*") -}}
{{- $both := list -}}
{{- range splitList "," (include "windlass.running" $) -}}
{{- if and (ne . "rollingupdate-controller") (eq "true" (include "windlass.runs" (dict "name" . "controllers" $controllers))) -}}
{{- $both = append $both . -}}
{{- end -}}
{{- end -}}
{{- if $both -}}
{{- $clashes = append $clashes (printf "%s runs %s" .metadata.name (join ", " $both)) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- dict "seen" $seen "clashes" $clashes | toJson -}}
{{- end }}
