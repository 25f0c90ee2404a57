variable "organization_id" {
  description = "Organization of the project."
  type        = string
}

variable "project_id" {
  description = "The only project that the key may touch. Give it to the provider alone."
  type        = string
}

variable "name" {
  description = "Name of application, policy and key; that of the provider, such as bigfleet-scaleway-fr-par."
  type        = string

  validation {
    condition     = can(regex("^[a-zA-Z0-9][a-zA-Z0-9._-]{0,63}$", var.name))
    error_message = "The name must have 1 to 64 letters, digits, dots, dashes or underscores."
  }
}

variable "enable_elastic_metal" {
  description = "Also allow dedicated servers (--substrate=elastic-metal)."
  type        = bool
  default     = false
}

variable "enable_private_networks" {
  description = "Also allow what offerings with private_network_ids need."
  type        = bool
  default     = false
}

variable "key_expires_at" {
  description = "When the key ends by itself, such as 2027-12-31T00:00:00Z; null for never."
  type        = string
  default     = null
}
