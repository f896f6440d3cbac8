{{/*
A rule with these `verbs` for each API group of `names`, which are as `kubectl api-resources -o name` prints them, but for those
that are in `without`.
*/}}
{{- define "windlass.collectedRules" -}}
{{- $groups := dict }}
{{- range .names }}
{{- if not (has . $.without) }}
{{- $group := regexReplaceAll "^[^.]*\\.?" . "" }}
{{- $_ := set $groups $group (append (get $groups $group | default list) (regexReplaceAll "\\..*" . "")) }}
{{- end }}
{{- end }}
{{- range $group, $resources := $groups }}
- apiGroups: [{{ $group | quote }}]
  resources: [{{ join ", " $resources }}]
  verbs: [{{ $.verbs }}]
{{- end }}
{{- end }}

{{/*
CEL: whether a change of an object is one of the garbage collector's. References to owners come off, or block them no
more, and finalizers of the two deletions that wait for dependents come off an object that is being deleted. Nothing else
changes, labels and annotations included: with a label on a Namespace an attacker could lift its Pod Security level.
*/}}
{{- define "windlass.isCollected" -}}
dyn(object).all(key, key == 'metadata' || key in dyn(oldObject) && dyn(object)[key] == dyn(oldObject)[key])
&& dyn(oldObject).all(key, key in dyn(object))
&& object.metadata.?labels == oldObject.metadata.?labels
&& object.metadata.?annotations == oldObject.metadata.?annotations
&& (object.metadata.?finalizers == oldObject.metadata.?finalizers
|| has(oldObject.metadata.deletionTimestamp) && object.metadata.?finalizers.orValue([])
== oldObject.metadata.?finalizers.orValue([]).filter(it, !(it in ['orphan', 'foregroundDeletion'])))
&& (object.metadata.?ownerReferences == oldObject.metadata.?ownerReferences || variables.keepsReferences0
&& variables.keepsReferences1 && variables.keepsReferences2 && variables.keepsReferences3 && variables.keepsOtherReferences)
{{- end }}

{{/*
CEL: variables of a policy that uses windlass.isCollected. Each reference after a change must have been there before; it may
block its owner no more. The API server ends an expression at a cost of 1,000,000, and all of a policy at ten times that: to look
for each of some hundred references among as many costs more. So the UIDs are divided by their first digit, and by four of
them in one expression: that is enough for any object that fits into etcd, as UIDs are random. Those that do not begin with a
digit, which the API server never makes, are looked for among themselves, and more than a thousand of them are refused.
*/}}
{{- define "windlass.referenceVariables" -}}
{{- $key := "string(it.uid), string(it.apiVersion), string(it.kind), string(it.name)" }}
{{- $flags := "it.?controller.orValue(false) ? 'controls' : '', it.?blockOwnerDeletion.orValue(false) ? 'blocks' : ''" }}
{{- $kept := "it in before || it[5] == '' && [it[0], it[1], it[2], it[3], it[4], 'blocks'] in before" }}
- name: referencesBefore
  expression: >-
    oldObject == null ? [] : oldObject.metadata.?ownerReferences.orValue([]).map(it,
    [{{ $key }},
    {{ $flags }}])
- name: referencesAfter
  expression: >-
    object == null ? [] : object.metadata.?ownerReferences.orValue([]).map(it,
    [{{ $key }},
    {{ $flags }}])
{{- range $at, $digits := list "'0', '1', '2', '3'" "'4', '5', '6', '7'" "'8', '9', 'a', 'b'" "'c', 'd', 'e', 'f'" }}
- name: keepsReferences{{ $at }}
  expression: >-
    [{{ $digits }}].all(digit, [variables.referencesBefore.filter(it, it[0].startsWith(digit))].all(before,
    variables.referencesAfter.filter(it, it[0].startsWith(digit)).all(it,
    {{ $kept }})))
{{- end }}
- name: keepsOtherReferences
  expression: >-
    [variables.referencesBefore.filter(it, !it[0].matches('^[0-9a-f]'))].all(before,
    variables.referencesAfter.filter(it, !it[0].matches('^[0-9a-f]')).all(it,
    {{ $kept }}))
{{- end }}

{{/*
CEL: whether a request is judged by a rule of its own, or is a write of another controller of this release whose
permissions are in rbac.yaml. The policy of the garbage collector, which applies to everything, leaves it alone.
*/}}
{{- define "windlass.hasOwnRules" -}}
{{- $running := splitList "," (include "windlass.running" .) }}
{{- $core := list "pods" "events" }}
{{- $status := list }}
{{- range list "deployment" "replicaset" "daemonset" "statefulset" }}
{{- if has (printf "%s-controller" .) $running }}{{ $status = append $status (printf "apps %ss" .) }}{{ end }}
{{- end }}
{{- if or (has "replicationcontroller-controller" $running) (has "rollingupdate-controller" $running) }}
{{- $status = append $status " replicationcontrollers" }}
{{- end }}
{{- range list "job" "cronjob" }}
{{- if has (printf "%s-controller" .) $running }}{{ $status = append $status (printf "batch %ss" .) }}{{ end }}
{{- end }}
{{- if has "disruption-controller" $running }}{{ $status = append $status "policy poddisruptionbudgets" }}{{ end }}
{{- $deletesPods := or (has "pod-garbage-collector-controller" $running) (has "taint-eviction-controller" $running) }}
{{- if or $deletesPods (has "node-lifecycle-controller" $running) (has "disruption-controller" $running) }}{{ $status = append $status " pods" }}{{ end }}
{{- if has "resourcequota-controller" $running }}{{ $status = append $status " resourcequotas" }}{{ end }}
{{- if has "node-lifecycle-controller" $running }}{{ $core = append $core "nodes" }}{{ $status = append $status " nodes" }}{{ end }}
{{- if has "rollingupdate-controller" $running }}{{ $core = append $core "replicationcontrollers" }}{{ end }}
{{- if or (has "statefulset-controller" $running) (has "persistentvolumeclaim-protection-controller" $running) }}{{ $core = append $core "persistentvolumeclaims" }}{{ end }}
{{- if has "persistentvolume-protection-controller" $running }}{{ $core = append $core "persistentvolumes" }}{{ end -}}
{{- if has "rollingupdate-controller" $running -}}
request.operation == 'DELETE' && request.resource.group == '' && request.resource.resource == 'replicationcontrollers' ||
{{ end -}}
{{- if or (has "cronjob-controller" $running) (has "ttl-after-finished-controller" $running) -}}
request.operation == 'DELETE' && request.resource.group == 'batch' && request.resource.resource == 'jobs' ||
{{ end -}}
{{- if $deletesPods -}}
request.operation == 'DELETE' && request.resource.group == '' && request.resource.resource == 'pods' ||
{{ end -}}
{{- if has "endpoints-controller" $running -}}
request.operation in ['UPDATE', 'DELETE'] && request.resource.group == '' && request.resource.resource == 'endpoints' ||
{{ end -}}
{{- if or (has "endpointslice-controller" $running) (has "endpointslice-mirroring-controller" $running) -}}
request.operation in ['UPDATE', 'DELETE'] && request.resource.group == 'discovery.k8s.io'
&& request.resource.resource == 'endpointslices' ||
{{ end -}}
request.operation == 'UPDATE' && (request.?subResource.orValue('') == ''
? (request.resource.group == '' && request.resource.resource in ['{{ join "', '" $core }}']
|| request.resource.group == 'apps' && request.resource.resource in ['replicasets', 'controllerrevisions', 'deployments']
{{- if has "root-ca-certificate-publisher-controller" $running }}
|| request.resource.group == '' && request.resource.resource == 'configmaps' && request.?name.orValue('') == 'kube-root-ca.crt'
{{- end }}
{{- if has "clusterrole-aggregation-controller" $running }}
|| request.resource.group == 'rbac.authorization.k8s.io' && request.resource.resource == 'clusterroles'
{{- end }}
|| request.resource.group == 'coordination.k8s.io' && request.resource.resource == 'leases'
&& request.?namespace.orValue('') == {{ include "windlass.leaseNamespace" . | squote }}
&& request.?name.orValue('') == {{ include "windlass.leaseName" . | squote }})
: (request.?subResource.orValue('') == 'status'
&& request.resource.group + ' ' + request.resource.resource in ['{{ join "', '" $status }}']
{{- if has "namespace-controller" $running }}
|| request.resource.group == '' && request.resource.resource == 'namespaces'
&& request.?subResource.orValue('') in ['status', 'finalize']
{{- end }}))
{{- end }}

{{/*
A validation that refuses all connections through the API server: to read and to delete everything includes the
subresources `proxy` of nodes, pods and Services, and before Kubernetes 1.35 `exec` of pods. Windlass opens none.
*/}}
{{- define "windlass.noConnections" -}}
- expression: request.operation != 'CONNECT'
  message: no connections may be opened to nodes, pods or Services
  reason: Forbidden
{{- end }}

{{/*
CEL: whether the metadata that clients write are the same before and after, but for the annotations. The API server lets them
change through status subresources.
*/}}
{{- define "windlass.keepsMetadata" -}}
object.metadata.?labels == oldObject.metadata.?labels
&& object.metadata.?finalizers == oldObject.metadata.?finalizers
&& object.metadata.?ownerReferences == oldObject.metadata.?ownerReferences
{{- end }}
