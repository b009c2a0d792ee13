{{- define "palaver.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "palaver.labels" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{/* What every pod is: nobody, with nothing to write to but what is mounted. */}}
{{- define "palaver.pod" -}}
{{- with .Values.imagePullSecrets }}
imagePullSecrets: {{ toYaml . | nindent 2 }}
{{- end }}
automountServiceAccountToken: false
enableServiceLinks: false
securityContext:
  runAsNonRoot: true
  runAsUser: 10001
  runAsGroup: 10001
  fsGroup: 10001
  seccompProfile: {type: RuntimeDefault}
{{- end }}

{{- define "palaver.container" -}}
image: {{ include "palaver.image" . }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities: {drop: [ALL]}
envFrom:
  - configMapRef: {name: {{ .Release.Name }}-settings}
  - secretRef: {name: {{ .Values.existingSecret }}}
{{- end }}

{{- define "palaver.mounts" -}}
- {name: tmp, mountPath: /tmp}
- {name: run, mountPath: /run/palaver}
- {name: cache, mountPath: /cache}
{{- end }}

{{- define "palaver.volumes" -}}
- name: tmp
  emptyDir: {}
- name: run
  emptyDir: {}
- name: cache
  {{- if .Values.modelCache.existingClaim }}
  persistentVolumeClaim: {claimName: {{ .Values.modelCache.existingClaim }}}
  {{- else }}
  emptyDir: {}
  {{- end }}
{{- end }}

{{- define "palaver.settings" -}}
ALLOWED_HOSTS: {{ join "," .Values.hosts | quote }}
CSRF_TRUSTED_ORIGINS: {{ printf "https://%s" (join ",https://" .Values.hosts) | quote }}
HTTPS: "true"
BEHIND_PROXY: "true"
{{- range $name, $value := .Values.settings }}
{{ $name }}: {{ $value | quote }}
{{- end }}
{{- end }}
