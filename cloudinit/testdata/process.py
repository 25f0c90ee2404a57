"""Processes user data with the machine's own cloud-init, without touching the
machine: prints the parts, the merged cloud-config and the scripts as JSON, and
writes write_files below a directory of the caller's."""

import json
import logging
import os
import sys

from cloudinit import handlers, helpers, user_data, util
from cloudinit.config import cc_write_files
from cloudinit.handlers.cloud_config import CloudConfigPartHandler
from cloudinit.handlers.shell_script import ShellScriptPartHandler


def main(source, root):
    logging.basicConfig(stream=sys.stderr, level=logging.WARNING)
    paths = helpers.Paths({"cloud_dir": os.path.join(root, "cloud"), "run_dir": os.path.join(root, "run")})
    instance = os.path.join(root, "cloud", "instance")
    os.makedirs(os.path.join(instance, "scripts"))
    config_fn = os.path.join(instance, "cloud-config.txt")
    paths.get_ipath = lambda name=None: config_fn if name == "cloud_config" else os.path.join(instance, str(name))
    paths.get_ipath_cur = lambda name=None: os.path.join(instance, str(name))

    with open(source, "rb") as f:
        message = user_data.UserDataProcessor(paths).process(f.read())

    known = helpers.ContentHandlers()
    ours = (CloudConfigPartHandler(paths), ShellScriptPartHandler(paths))
    for handler in ours:
        known.register(handler)
        handlers.call_begin(handler, None, "once-per-instance")
    parts = []

    def seen(data, filename, payload, headers):
        parts.append({"type": headers["Content-Type"], "name": filename})
        handlers.walker_callback(data, filename, payload, headers)

    handlers.walk(message, seen, {
        "handlers": known, "handlerdir": root, "data": None, "frequency": "once-per-instance",
        "handlercount": 0, "excluded": []})
    for handler in ours:
        handlers.call_end(handler, None, "once-per-instance")

    config = util.load_yaml(util.load_file(config_fn)) or {}
    tree = os.path.join(root, "tree")
    for entry in config.get("write_files") or []:
        cc_write_files.write_files("write_files", [dict(entry, path=tree + entry["path"], owner="root:root")], "root:root")
    scripts = {}
    for name in sorted(os.listdir(os.path.join(instance, "scripts"))):
        scripts[name] = util.load_file(os.path.join(instance, "scripts", name))
    json.dump({"parts": parts, "config": config, "scripts": scripts}, sys.stdout, indent=1)


main(*sys.argv[1:])
