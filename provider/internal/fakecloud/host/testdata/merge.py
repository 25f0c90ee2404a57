"""Merges documents with the machine's own cloud-init; see merge_test.go."""

import json
import sys

import yaml
from cloudinit import mergers
from cloudinit.handlers.cloud_config import DEF_MERGERS

with open(sys.argv[1]) as f:
    cases = json.load(f)
results = []
for pair in cases["pairs"]:
    for rule in cases["rules"]:
        old, part = yaml.safe_load_all(pair)
        declared = mergers.string_extract_mergers(rule) or DEF_MERGERS
        results.append(mergers.construct(declared).merge(old, part))
print("[\n" + ",\n".join(json.dumps(r, sort_keys=True) for r in results) + "\n]")
