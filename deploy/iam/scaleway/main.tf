# The identity of one provider at Scaleway: an application, a policy with the
# permissions that the provider uses, on one project, and an API key. Works with
# OpenTofu and Terraform. docs/credentials.md says how to apply, rotate and
# remove it.

terraform {
  required_version = ">= 1.5"
  required_providers {
    scaleway = {
      source  = "scaleway/scaleway"
      version = "~> 2.40"
    }
  }
}

# Whoever applies this needs IAMManager on the organization: SCW_ACCESS_KEY and
# SCW_SECRET_KEY of the environment.
provider "scaleway" {
  organization_id = var.organization_id
  project_id      = var.project_id
}

locals {
  permission_sets = concat(
    # Servers, their user data, local volumes and addresses.
    ["InstancesFullAccess"],
    # The root volumes are of another product: without it every Delete would leave
    # one, and it bills.
    ["BlockStorageFullAccess"],
    # There is no BareMetalFullAccess, although the API is called baremetal. Each
    # installation names SSH keys, which are looked up.
    var.enable_elastic_metal ? ["ElasticMetalFullAccess", "SSHKeysReadOnly"] : [],
    # Offerings with private_network_ids.
    var.enable_private_networks ? ["PrivateNetworksFullAccess", "IPAMFullAccess"] : [],
  )
}

resource "scaleway_iam_application" "provider" {
  name        = var.name
  description = "BigFleet capacity provider"

  # Without this identity nobody can delete the servers that still run. Remove
  # them first, then this line.
  lifecycle {
    prevent_destroy = true
  }
}

resource "scaleway_iam_policy" "provider" {
  name           = var.name
  description    = "What the BigFleet capacity provider calls, in its project"
  application_id = scaleway_iam_application.provider.id

  rule {
    project_ids          = [var.project_id]
    permission_set_names = local.permission_sets
  }
}

resource "scaleway_iam_api_key" "provider" {
  application_id     = scaleway_iam_application.provider.id
  default_project_id = var.project_id
  description        = var.name
  expires_at         = var.key_expires_at

  # A key works once its policy holds.
  depends_on = [scaleway_iam_policy.provider]

  lifecycle {
    create_before_destroy = true
  }
}
