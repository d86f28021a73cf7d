{{- define "unerring.name" -}}
{{ .Release.Name | trunc 40 | trimSuffix "-" }}
{{- end }}

{{- define "unerring.image" -}}
{{ .Values.image.name }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "unerring.labels" -}}
app.kubernetes.io/name: unerring
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ .Chart.Name }}-{{ .Chart.Version }}
{{- end }}

{{- /* What chooses the pods of a part: (list . "live") */ -}}
{{- define "unerring.selector" -}}
app.kubernetes.io/name: unerring
app.kubernetes.io/instance: {{ (index . 0).Release.Name }}
app.kubernetes.io/component: {{ index . 1 }}
{{- end }}

{{- define "unerring.podSecurity" -}}
runAsNonRoot: true
runAsUser: 10001
runAsGroup: 10001
fsGroup: 10001
seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "unerring.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: {drop: [ALL]}
{{- end }}

{{- define "unerring.env" -}}
{{- range $name, $value := .Values.env }}
- {name: {{ $name }}, value: {{ $value | quote }}}
{{- end }}
{{- end }}

{{- /* Whether a pod is well, over TLS if it speaks that: (bool) */ -}}
{{- define "unerring.probes" -}}
{{- $scheme := ternary "HTTPS" "HTTP" . }}
startupProbe:
  httpGet: {path: /readyz, port: metrics, scheme: {{ $scheme }}}
  periodSeconds: 2
  failureThreshold: 150
readinessProbe:
  httpGet: {path: /readyz, port: metrics, scheme: {{ $scheme }}}
  periodSeconds: 5
livenessProbe:
  httpGet: {path: /healthz, port: metrics, scheme: {{ $scheme }}}
  periodSeconds: 10
  failureThreshold: 3
{{- end }}

{{- define "unerring.placed" -}}
{{- with .Values.nodeSelector }}
nodeSelector: {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations: {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* Each pod's certificate as a folder of its name: (list . NAME COUNT SECRET) */ -}}
{{- define "unerring.certificates" -}}
- name: tls
  secret:
    secretName: {{ index . 3 }}
    defaultMode: 0440
    items:
    {{- $name := index . 1 }}
    {{- range $number := until (int (index . 2)) }}
    {{- range $file := list "ca.pem" "node.pem" "node.key" }}
      - {key: {{ $name }}-{{ $number }}.{{ $file }}, path: {{ $name }}-{{ $number }}/{{ $file }}}
    {{- end }}
    {{- end }}
{{- end }}
