{{template "begin"}}
{{- template "end" .}}
