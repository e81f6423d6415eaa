#!/usr/bin/env python3
"""Checks that namespaces follow the folders, of which only the first level counts.

common/X and worker/X have mt::X, with all folders below them; daemon and client have one namespace each; kernels/X has
mt::kernels::X, and kernels/core and kernels/ops, whose names every backend uses, mt::kernels. A nested namespace is anonymous
or stands in NESTED with the reason. Tests have the namespace of what they test, and are not looked at.

    namespaces.py [ROOT]   exits 1 and lists every offence
"""
import re
import sys
from pathlib import Path

from tree_files import CPP, tree_files

OPENING = re.compile(r"^\s*(?:inline )?namespace (mt(?:::\w+)*)\s*\{", re.MULTILINE)

# A declaration of another folder's type, which is no definition.
DECLARATION = re.compile(r"^namespace mt::\w+ \{\n(?:(?:class|struct) \w+;\n)+\}.*\n", re.MULTILINE)

# Namespaces beside the folder's own, and why.
NESTED = {
    "mt": {"common/base": "Status and its macros are used everywhere without a prefix"},
    "mt::log": {"common/base": "calls read log::Info"},
}


def namespace_of(path):
    """The namespace of a file, or None where it has none of ours."""
    parts = path.split("/")
    if parts[0] in ("daemon", "client"):
        return f"mt::{parts[0]}"
    if len(parts) < 3 or parts[0] not in ("common", "worker", "kernels"):
        return None
    if parts[0] == "kernels":
        return "mt::kernels" if parts[1] in ("core", "ops") else f"mt::kernels::{parts[1]}"
    return f"mt::{parts[1]}"


def check_file(path, text):
    own = namespace_of(path)
    if own is None:
        return []
    folder = "/".join(path.split("/")[:2])
    return [f"{path}: namespace {name}, its folder has {own}" for name in sorted(set(OPENING.findall(DECLARATION.sub("", text))))
            if name != own and folder not in NESTED.get(name, {})]


def check_exceptions(used):
    return [f"namespaces.py: {folder} needs no {name}: take it out of NESTED" for name, folders in NESTED.items() for folder in folders
            if (name, folder) not in used]


def self_test():
    assert not check_file("worker/node/ranks/a.h", "namespace mt::node {\n}")
    assert check_file("worker/node/ranks/a.h", "namespace mt::ranks {\n}")
    assert check_file("worker/node/ranks/a.h", "namespace mt::node::ranks {\n}")
    assert check_file("kernels/cuda/product/a.cu", "namespace mt::kernels::cuda::hopper {")
    assert check_file("kernels/ops/a.h", "namespace mt::kernels::ops {") and not check_file("kernels/core/a.h", "namespace mt::kernels {")
    assert not check_file("common/base/log.h", "namespace mt::log {") and check_file("worker/node/a.h", "namespace mt::log {")
    assert not check_file("daemon/a.h", "namespace mt::spec {\nstruct A;\n}\n") and check_file("daemon/a.h", "namespace mt::spec {\nstruct A {};\n}\n")
    assert not check_file("worker/shim.cc", "namespace x {") and check_exceptions(set())


def main():
    self_test()
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    faults, used, count = [], set(), 0
    for path in tree_files(root, CPP):
        text = (root / path).read_text(errors="replace")
        count += namespace_of(path) is not None
        faults += check_file(path, text)
        used |= {(name, "/".join(path.split("/")[:2])) for name in OPENING.findall(text)}
    faults += check_exceptions(used)
    print("\n".join(faults) if faults else f"{count} files, each in the namespace of its folder")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
