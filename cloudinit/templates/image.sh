{{template "begin"}}
{{- template "end"}}
