{{/* SPDX-License-Identifier: Apache-2.0 */}}
{{- define "openmps.name" -}}
{{ printf "%s-openmps" .Release.Name | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "openmps.labels" -}}
app.kubernetes.io/name: openmps
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "openmps.image" -}}
{{ required "image.repository: name your image; packaging/kubernetes/Containerfile makes it" .Values.image.repository }}:{{ .Values.image.tag }}
{{- end }}

{{- define "openmps.check" -}}
{{- if not (has .Values.mode (list "device-plugin" "dra")) }}{{ fail (printf "mode: %s: expected device-plugin or dra" .Values.mode) }}{{ end }}
{{- if not (has .Values.driver (list "nvidia" "softgpu")) }}{{ fail (printf "driver: %s: expected nvidia or softgpu" .Values.driver) }}{{ end }}
{{- end }}
