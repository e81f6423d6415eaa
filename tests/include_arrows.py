#!/usr/bin/env python3
"""Checks who may include whom: every `#include "..."` of own code must be an allowed edge.

The table is the map of README.md. Two more rules: heavy headers (gRPC, protobuf, CUDA, NCCL) stay where they belong, and
headers of our own never include generated ones. Run by CTest; exits 1 and lists every offence.
"""
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()

# A folder may include itself and what is listed; the longest matching prefix of a file's folder counts.
ALLOWED = {
    "common/base": [],
    "common/spec": ["common/base", "common/layout", "megatrain"],
    "common/layout": ["common/base"],
    "common/gpu": ["common/base"],
    "common/http": ["common/base", "common/rpc"],
    "common/metrics": ["common/base"],
    "common/nvml": ["common/base"],
    "common/report": ["common/base", "megatrain"],
    "common/rpc": ["common/base", "megatrain"],
    "kernels/core": ["common/base"],
    "kernels/ops": ["common/base", "kernels/core"],
    "kernels/cpu": ["common/base", "kernels/core", "kernels/ops"],
    "kernels/cuda": ["common/base", "common/gpu", "kernels/core", "kernels/ops"],
    "kernels/replay": ["common/base", "kernels/core", "kernels/ops"],
    "kernels/bench": ["common/base", "kernels"],
    "worker/params": ["common", "kernels", "worker/memory"],
    "worker/memory": ["common", "kernels"],
    "worker/comm": ["common", "kernels"],
    "worker/data": ["common", "kernels/core"],
    "worker/parallel/schedule": ["common", "megatrain"],
    "worker/parallel": ["common", "kernels", "worker/params", "worker/memory", "worker/comm", "worker/data"],
    "worker/optim": ["common", "kernels", "worker/params", "worker/memory", "worker/comm", "worker/data",
                     "worker/parallel", "megatrain"],
    "worker/model": ["common", "kernels", "worker/params", "worker/memory", "worker/comm", "worker/data",
                     "worker/parallel", "worker/optim", "megatrain"],
    "worker/checkpoint/format": ["common"],
    "worker/checkpoint": ["common", "kernels", "worker/comm"],
    "worker/train": ["common", "kernels", "worker/params", "worker/memory", "worker/comm", "worker/data",
                     "worker/parallel", "worker/optim", "worker/model", "worker/checkpoint", "megatrain"],
    "worker/bench": ["common", "kernels", "worker/train", "worker/memory", "megatrain"],
    "worker/rank": ["common", "kernels", "worker", "megatrain"],
    "worker/agent": ["common", "worker/shim", "worker/probe", "megatrain"],
    "worker/shim": [],
    "worker/probe": ["common/base", "common/gpu", "common/nvml"],
    "daemon": ["common", "megatrain"],
    "client": ["common", "megatrain", "worker/data", "worker/checkpoint/format", "worker/parallel/schedule"],
    "tests": ["common", "kernels", "worker", "daemon", "client", "megatrain"],
}

# Library headers and the only places that may include them.
CONFINED = [
    (re.compile(r"^(grpc|grpcpp)/|\.grpc\.pb\.h$"),
     ["common/rpc", "daemon/service", "daemon/main.cc", "client", "worker/rank", "worker/agent", "tests"]),
    (re.compile(r"^(cuda|cublas|cudnn|nvml)"), ["kernels/cuda", "kernels/bench/experiments", "tests/kernels/cuda"]),
    (re.compile(r"^nccl"), ["worker/comm/nccl", "tests/worker/comm"]),
    (re.compile(r"^gloo/"), ["worker/comm/gloo"]),
    (re.compile(r"^cblas|^openblas"), ["kernels/cpu", "kernels/bench"]),
    (re.compile(r"^sqlite3\.h$"), ["daemon/store", "tests/daemon"]),
    (re.compile(r"^spdlog/"), ["common/base"]),
    (re.compile(r"^boost/beast/"), ["common/http"]),
    (re.compile(r"^prometheus/"), ["common/metrics"]),
]

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')


def longest(path, prefixes):
    hits = [p for p in prefixes if path == p or path.startswith(p + "/")]
    return max(hits, key=len) if hits else None


def check(path, text):
    owner = longest(path, ALLOWED)
    if owner is None:
        return [f"{path}: no row in the table for this folder"]
    faults = []
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if not match:
            continue
        quoted, target = match.group(1) == '"', match.group(2)
        where = f"{path}:{number}: includes {target}"
        for pattern, places in CONFINED:
            if pattern.search(target) and longest(path, places) is None:
                faults.append(f"{where}, which only {', '.join(places)} may")
        generated = target.endswith(".pb.h")
        if generated and path.endswith(".h") and not path.startswith("tests/"):
            faults.append(f"{where}: generated headers stay out of our own headers")
        if not quoted and not generated:
            continue
        inside = target == owner or target.startswith(owner + "/")
        if not inside and longest(target, ALLOWED[owner]) is None:
            faults.append(f"{where}, but {owner} may include only {', '.join(ALLOWED[owner]) or 'itself'}")
    return faults


def self_test():
    """The check must see an offence of each kind, and let a lawful include pass."""
    assert not check("worker/comm/a.h", '#include "kernels/core/dtype.h"\n#include <vector>')
    assert check("kernels/cpu/a.cc", '#include "worker/comm/process_group.h"')
    assert check("worker/params/a.cc", '#include "worker/train/trainer.h"')
    assert check("client/a.cc", '#include "worker/model/stage.h"')
    assert check("daemon/jobs/a.cc", "#include <grpcpp/grpcpp.h>")
    assert check("worker/model/a.cc", "#include <cuda_runtime.h>")
    assert check("common/spec/a.h", '#include "megatrain/v1/job.pb.h"')
    assert check("elsewhere/a.cc", "")


def main():
    self_test()
    files = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", "*.h", "*.cc", "*.cu", "*.cuh"],
                           cwd=ROOT, check=True, capture_output=True, text=True).stdout.split()
    files = [f for f in files if (ROOT / f).exists()]
    if len(files) < 50:
        sys.exit(f"only {len(files)} source files found below {ROOT}: wrong folder?")
    faults = [fault for f in files for fault in check(f, (ROOT / f).read_text(errors="replace"))]
    print("\n".join(faults) if faults else f"{len(files)} files, all includes follow the arrows")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
