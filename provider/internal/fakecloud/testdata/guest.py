# Reads the metadata service at the URL given, with cloud-init's own data
# source, and prints what a guest would work with.
import json
import sys

from cloudinit import helpers
from cloudinit.sources import DataSourceScaleway as scaleway

base = sys.argv[1]
config = {"datasource": {"Scaleway": {
    "metadata_url": base + "/conf?format=json",
    "userdata_url": base + "/user_data/cloud-init",
    "vendordata_url": base + "/vendor_data/cloud-init",
    "retries": 10,
}}}
source = scaleway.DataSourceScaleway(config, None, helpers.Paths({}))
source.ds_cfg.update(config["datasource"]["Scaleway"])
source.metadata_address = source.ds_cfg["metadata_url"]
source.userdata_address = source.ds_cfg["userdata_url"]
source.vendordata_address = source.ds_cfg["vendordata_url"]
source._crawl_metadata()
source._fallback_interface = "ens2"
print(json.dumps({
    "id": source.get_instance_id(),
    "hostname": str(source.get_hostname().hostname),
    "keys": source.get_public_ssh_keys(),
    "user_data": source.userdata_raw,
    "vendor_data": source.vendordata_raw,
    "subnets": [s["type"] for s in source.network_config["config"][0]["subnets"]],
}))
