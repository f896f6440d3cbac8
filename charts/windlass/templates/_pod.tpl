{{/* The pod template of the Deployment and of the bootstrap. Needs `root` and `component`. */}}
{{- define "windlass.pod" -}}
{{- $component := .component -}}
{{- with .root -}}
metadata:
  labels:
    {{- include "windlass.selectorLabels" . | nindent 4 }}
    app.kubernetes.io/component: {{ $component }}
    {{- with .Values.podLabels }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
  {{- with .Values.podAnnotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  serviceAccountName: {{ include "windlass.serviceAccountName" . | quote }}
  automountServiceAccountToken: false
  {{- if and (eq $component "bootstrap") (eq (include "windlass.bootstrapKind" .) "Job") }}
  # A Job does not take Always.
  restartPolicy: OnFailure
  {{- end }}
  # A Service called windlass-secure would set WINDLASS_SECURE_PORT.
  enableServiceLinks: false
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . | quote }}
  {{- end }}
  {{- if .Values.hostNetwork }}
  hostNetwork: true
  {{- end }}
  terminationGracePeriodSeconds: {{ .Values.terminationGracePeriodSeconds }}
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  securityContext:
    {{- toYaml .Values.podSecurityContext | nindent 4 }}
  containers:
  - name: windlass
    image: {{ include "windlass.image" (dict "image" .Values.image "version" .Chart.AppVersion) | quote }}
    imagePullPolicy: {{ .Values.image.pullPolicy }}
    args:
    - --controllers={{ join "," .Values.controllers }}
    - --leader-elect-resource-name={{ include "windlass.leaseName" . }}
    - --leader-elect-resource-namespace={{ include "windlass.leaseNamespace" . }}
    - --secure-port={{ int64 .Values.securePort }}
    - --kube-api-qps={{ .Values.kubeAPI.qps }}
    - --kube-api-burst={{ int64 .Values.kubeAPI.burst }}
    - --on-conflict={{ .Values.onConflict }}
    - {{ printf "--field-manager=%s" .Values.fieldManager | quote }}
    - --logging-format={{ .Values.logging.format }}
    - --v={{ int64 .Values.logging.verbosity }}
    {{- with .Values.scope.namespace }}
    - --namespace={{ . }}
    {{- end }}
    {{- with .Values.scope.selector }}
    - {{ printf "--selector=%s" . | quote }}
    {{- end }}
    {{- with .Values.garbageCollection.resources }}
    - {{ join "," . | printf "--gc-resources=%s" | quote }}
    {{- end }}
    {{- with .Values.garbageCollection.ignoredResources }}
    - {{ join "," . | printf "--gc-ignored-resources=%s" | quote }}
    {{- end }}
    {{- if not .Values.authentication.enabled }}
    - --authentication-skip-lookup=true
    {{- end }}
    {{- if .Values.tls.secretName }}
    - --tls-cert-file=/etc/windlass/tls/tls.crt
    - --tls-private-key-file=/etc/windlass/tls/tls.key
    {{- end }}
    {{- range .Values.extraArgs }}
    - {{ . | quote }}
    {{- end }}
    {{- with .Values.extraEnv }}
    env:
      {{- toYaml . | nindent 4 }}
    {{- end }}
    ports:
    - name: https
      containerPort: {{ .Values.securePort }}
      protocol: TCP
    startupProbe:
      httpGet:
        path: /livez
        port: https
        scheme: HTTPS
      periodSeconds: 2
      failureThreshold: 30
    livenessProbe:
      httpGet:
        path: /livez
        port: https
        scheme: HTTPS
      timeoutSeconds: 5
      failureThreshold: 6
    # A standby is ready too, or a rolling update would never finish.
    readinessProbe:
      httpGet:
        path: /readyz
        port: https
        scheme: HTTPS
      periodSeconds: 5
      timeoutSeconds: 5
    {{- with .Values.resources }}
    resources:
      {{- toYaml . | nindent 6 }}
    {{- end }}
    securityContext:
      allowPrivilegeEscalation: false
      readOnlyRootFilesystem: true
      capabilities:
        drop: [ALL]
    volumeMounts:
    - name: token
      mountPath: /var/run/secrets/kubernetes.io/serviceaccount
      readOnly: true
    {{- if .Values.tls.secretName }}
    - name: tls
      mountPath: /etc/windlass/tls
      readOnly: true
    {{- end }}
  volumes:
  # Bound to this pod and short-lived; the kubelet renews it.
  - name: token
    projected:
      defaultMode: 292 # 0444
      sources:
      - serviceAccountToken:
          path: token
          expirationSeconds: 3600
      - configMap:
          name: kube-root-ca.crt
          items:
          - key: ca.crt
            path: ca.crt
      - downwardAPI:
          items:
          - path: namespace
            fieldRef:
              apiVersion: v1
              fieldPath: metadata.namespace
  {{- with .Values.tls.secretName }}
  - name: tls
    secret:
      secretName: {{ . | quote }}
      defaultMode: 292 # 0444
  {{- end }}
  {{- with .Values.nodeSelector }}
  nodeSelector:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
  affinity:
    {{- with .Values.affinity }}
    {{- toYaml . | nindent 4 }}
    {{- else }}
    podAntiAffinity:
      preferredDuringSchedulingIgnoredDuringExecution:
      - weight: 100
        podAffinityTerm:
          topologyKey: kubernetes.io/hostname
          labelSelector:
            matchLabels:
              {{- include "windlass.selectorLabels" . | nindent 14 }}
    {{- end }}
  topologySpreadConstraints:
  {{- with .Values.topologySpreadConstraints }}
    {{- toYaml . | nindent 2 }}
  {{- else }}
  - maxSkew: 1
    topologyKey: topology.kubernetes.io/zone
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "windlass.selectorLabels" . | nindent 8 }}
  {{- end }}
{{- end -}}
{{- end }}
