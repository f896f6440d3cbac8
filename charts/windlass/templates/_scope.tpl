{{/* Which labels scope.selector matches. */}}

{{/*
"true" if `selector` matches `labels`. It parses what --selector parses, and all requirements must hold: key, !key,
key=value, key!=value, key in (a,b), key notin (a,b). != and notin also match an object without the key. Anything else
is left to the program, which refuses it with an error that names it.
*/}}
{{- define "windlass.selects" -}}
{{- $labels := .labels -}}
{{- $answer := "true" -}}
{{- range regexFindAll "[^,(]+(\\([^)]*\\))?" .selector -1 -}}
{{- $text := trim . -}}
{{- $key := $text -}}
{{- $values := list -}}
{{- $isAny := false -}}
{{- $isNot := false -}}
{{- if contains "(" $text -}}
{{- $words := regexSplit "\\s+" (regexReplaceAll "\\(.*" $text "" | trim) -1 -}}
{{- $key = first $words -}}
{{- $isNot = eq "notin" (last $words) -}}
{{- range regexReplaceAll ".*\\((.*)\\)" $text "${1}" | splitList "," -}}
{{- $values = append $values (trim .) -}}
{{- end -}}
{{- else if hasPrefix "!" $text -}}
{{- $key = trimPrefix "!" $text -}}
{{- $isAny = true -}}
{{- $isNot = true -}}
{{- else if contains "=" $text -}}
{{- $sides := regexSplit "!=|==?" $text 2 -}}
{{- $key = first $sides -}}
{{- $values = list (last $sides | trim) -}}
{{- $isNot = contains "!=" $text -}}
{{- else -}}
{{- $isAny = true -}}
{{- end -}}
{{- $key = trim $key -}}
{{- $matches := and (hasKey $labels $key) (or $isAny (has (get $labels $key) $values)) -}}
{{- if eq $isNot $matches -}}
{{- $answer = "false" -}}
{{- end -}}
{{- end -}}
{{- $answer -}}
{{- end }}

{{/* "true" if scope.selector matches the release's own Deployment. */}}
{{- define "windlass.selectsItself" -}}
{{- $labels := include "windlass.deploymentLabels" . | fromYaml -}}
{{- include "windlass.selects" (dict "selector" .Values.scope.selector "labels" $labels) -}}
{{- end }}
