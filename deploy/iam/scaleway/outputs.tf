output "access_key" {
  description = "SCW_ACCESS_KEY of the provider."
  value       = scaleway_iam_api_key.provider.access_key
  sensitive   = true
}

output "secret_key" {
  description = "SCW_SECRET_KEY of the provider. It is in the state file in clear: keep that encrypted."
  value       = scaleway_iam_api_key.provider.secret_key
  sensitive   = true
}

output "project_id" {
  description = "SCW_DEFAULT_PROJECT_ID of the provider."
  value       = var.project_id
}
