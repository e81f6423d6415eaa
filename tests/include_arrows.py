#!/usr/bin/env python3
"""Checks who may include whom: every `#include "..."` of own code must be an edge of the table below, every edge of the table must
be used, and the folders must not include each other in a cycle.

The table is the map of README.md with a row per folder. Two more rules: heavy headers (gRPC, protobuf, CUDA, NCCL) stay where
they belong, and headers of our own never include generated ones.

    include_arrows.py [ROOT]           exits 1 and lists every offence
    include_arrows.py --print [ROOT]   prints the table as the tree is, with a row per folder, and the cycles in it
"""
import re
import sys
from collections import defaultdict
from pathlib import Path

from tree_files import CPP, tree_files

# A folder may include itself and the folders that are listed; "*" is every folder. Subfolders have rows of their own. After a
# change of folders --print writes it anew: read what changed, and take out what should not be there.
ALLOWED = {
    "client": ["client/commands", "client/session", "common/base", "common/rpc"],
    "client/commands": ["client/dev", "client/output", "client/plot", "client/session", "common/base", "common/control",
                        "common/layout", "common/report", "common/rpc", "common/spec", "megatrain", "worker/checkpoint/format",
                        "worker/checkpoint/inspect", "worker/data", "worker/data/prepare", "worker/data/token_files",
                        "worker/data/tokenizer", "worker/data/tokenizer/training", "worker/decode", "worker/decode/scores",
                        "worker/hf", "worker/llmc", "worker/parallel/schedule", "worker/train/job_data"],
    "client/dev": ["client/session", "common/base", "megatrain"],
    "client/output": ["common/base", "common/control", "common/layout", "common/report", "common/spec", "common/tensorboard",
                      "megatrain", "worker/data/prepare"],
    "client/plot": ["client/output", "common/base"],
    "client/session": ["client/output", "common/base", "common/control", "common/rpc", "megatrain"],
    "common/base": [],
    "common/control": [],
    "common/crypto": ["common/base"],
    "common/gpu": ["common/base"],
    "common/http": ["common/base", "common/rpc"],
    "common/layout": ["common/base"],
    "common/metrics": ["common/base"],
    "common/nvml": ["common/base"],
    "common/report": ["common/base", "megatrain"],
    "common/rpc": ["common/base", "common/control"],
    "common/spec": ["common/base", "common/layout", "megatrain"],
    "common/tensorboard": ["common/report", "megatrain"],
    "daemon": ["common/base", "common/rpc", "daemon/backup", "daemon/service", "daemon/store"],
    "daemon/api": ["common/base", "common/control", "common/rpc", "common/spec", "daemon/authority", "daemon/feeds",
                   "daemon/jobs", "daemon/keeper", "daemon/ledger", "daemon/membership", "daemon/scheduler", "daemon/telemetry",
                   "daemon/workers", "megatrain"],
    "daemon/authority": ["common/base", "common/rpc"],
    "daemon/backup": ["common/base", "common/control", "daemon/store", "megatrain"],
    "daemon/core": ["common/base", "common/control", "common/crypto", "common/rpc", "daemon/api", "daemon/authority",
                    "daemon/feeds", "daemon/hub", "daemon/jobs", "daemon/keeper", "daemon/ledger", "daemon/membership",
                    "daemon/rendezvous", "daemon/telemetry", "daemon/workers", "megatrain"],
    "daemon/feeds": ["common/base", "common/control", "daemon/hub", "daemon/jobs", "daemon/ledger", "daemon/store",
                     "daemon/telemetry", "megatrain"],
    "daemon/hub": ["common/base", "common/control", "common/rpc", "daemon/authority", "daemon/ledger", "daemon/rendezvous",
                   "megatrain"],
    "daemon/jobs": ["common/base", "common/control", "megatrain"],
    "daemon/keeper": ["common/base", "common/control", "common/report", "common/rpc", "common/spec", "daemon/authority",
                      "daemon/hub", "daemon/jobs", "daemon/ledger", "daemon/membership", "daemon/scheduler", "megatrain"],
    "daemon/ledger": ["common/base", "common/control", "daemon/jobs", "daemon/rendezvous", "daemon/store", "megatrain"],
    "daemon/membership": ["common/base", "common/control", "megatrain"],
    "daemon/meters": ["common/base", "common/control", "common/metrics", "common/report", "daemon/api", "daemon/authority",
                      "daemon/core", "daemon/feeds", "daemon/jobs", "daemon/keeper", "daemon/ledger", "daemon/store",
                      "daemon/telemetry", "daemon/workers", "megatrain"],
    "daemon/rendezvous": ["common/base"],
    "daemon/scheduler": ["common/base"],
    "daemon/service": ["common/base", "common/control", "common/http", "common/metrics", "common/rpc", "daemon/api",
                       "daemon/authority", "daemon/backup", "daemon/core", "daemon/feeds", "daemon/ledger", "daemon/membership",
                       "daemon/meters", "daemon/store", "daemon/telemetry", "daemon/workers", "megatrain"],
    "daemon/store": ["common/base"],
    "daemon/telemetry": ["common/base", "common/control", "common/report", "megatrain"],
    "daemon/workers": ["common/base", "common/control", "common/crypto", "common/rpc", "daemon/authority", "daemon/feeds",
                       "daemon/hub", "daemon/jobs", "daemon/keeper", "daemon/ledger", "daemon/membership", "megatrain"],
    "kernels/async": ["common/base", "kernels/core", "kernels/cpu", "kernels/ops", "kernels/replay"],
    "kernels/bench": ["kernels/cpu", "kernels/cuda", "kernels/ops"],
    "kernels/bench/experiments": ["kernels/core", "kernels/cuda", "kernels/cuda/attention", "kernels/cuda/gemm", "kernels/ops"],
    "kernels/core": ["common/base"],
    "kernels/cpu": ["common/base", "kernels/core", "kernels/cpu/loops", "kernels/ops"],
    "kernels/cpu/loops": ["kernels/core"],
    "kernels/cuda": ["common/base", "common/gpu", "kernels/core", "kernels/cuda/attention", "kernels/cuda/device", "kernels/cuda/gemm",
                     "kernels/ops"],
    "kernels/cuda/attention": ["common/base", "kernels/core", "kernels/cuda/decode", "kernels/cuda/device", "kernels/ops"],
    "kernels/cuda/decode": ["common/base", "kernels/cuda/device", "kernels/ops"],
    "kernels/cuda/device": ["common/base", "kernels/core", "kernels/ops"],
    "kernels/cuda/gemm": ["common/base", "kernels/core", "kernels/cuda/decode", "kernels/cuda/device", "kernels/ops"],
    "kernels/cuda/norm_rope": ["kernels/cuda/device", "kernels/ops"],
    "kernels/ops": ["common/base", "kernels/core"],
    "kernels/replay": ["common/base", "kernels/core", "kernels/ops"],
    "tests": ["*"],
    "worker/bench": ["common/base", "common/nvml", "common/report", "common/spec", "kernels/ops", "kernels/replay", "megatrain",
                     "worker/comm", "worker/parallel", "worker/parallel/schedule", "worker/trace", "worker/train"],
    "worker/checkpoint": ["common/base", "kernels/core", "worker/checkpoint/format", "worker/checkpoint/inspect", "worker/comm"],
    "worker/checkpoint/format": ["common/base"],
    "worker/checkpoint/inspect": ["common/base", "worker/checkpoint/format"],
    "worker/comm": ["common/base", "kernels/core", "worker/failure"],
    "worker/comm/gloo": ["common/base", "worker/comm"],
    "worker/comm/copies": ["common/base", "kernels/core", "kernels/ops", "worker/comm"],
    "worker/comm/nccl": ["common/base", "common/layout", "kernels/core", "worker/comm"],
    "worker/comm/shm": ["common/base", "worker/comm"],
    "worker/comm/threads": ["common/base", "worker/comm"],
    "worker/data": ["common/base", "kernels/core", "worker/data/tokenizer"],
    "worker/data/bench": ["worker/data"],
    "worker/data/prepare": ["common/base", "worker/data", "worker/data/tokenizer"],
    "worker/data/token_files": ["common/base", "worker/data", "worker/data/tokenizer"],
    "worker/data/tokenizer": ["common/base", "worker/data/tokenizer/sentencepiece_module"],
    "worker/data/tokenizer/bench": ["common/base", "worker/data/tokenizer"],
    "worker/data/tokenizer/sentencepiece_module": [],
    "worker/data/tokenizer/training": ["common/base", "worker/data/tokenizer"],
    "worker/decode": ["common/base", "common/layout", "common/spec", "kernels/core", "kernels/cpu", "kernels/cuda",
                      "kernels/ops", "megatrain", "worker/checkpoint", "worker/checkpoint/format", "worker/checkpoint/inspect",
                      "worker/comm", "worker/data", "worker/memory", "worker/model", "worker/parallel", "worker/params"],
    "worker/decode/job": ["common/base", "common/spec", "megatrain", "worker/checkpoint/format", "worker/decode",
                          "worker/decode/scores"],
    "worker/decode/scores": ["common/base", "common/spec", "worker/checkpoint/format", "worker/data/tokenizer",
                             "worker/decode", "worker/memory"],
    "worker/engine": ["common/base", "common/layout", "common/report", "common/spec", "kernels/core", "kernels/ops", "megatrain",
                      "worker/data", "worker/failure", "worker/memory", "worker/model", "worker/optim", "worker/parallel",
                      "worker/parallel/groups", "worker/parallel/pipeline", "worker/parallel/schedule", "worker/params",
                      "worker/tuning"],
    "worker/failure": ["common/base", "kernels/core"],
    "worker/hf": ["common/base", "common/spec", "kernels/core", "kernels/cpu/loops", "megatrain", "worker/checkpoint",
                  "worker/checkpoint/format", "worker/checkpoint/inspect", "worker/data", "worker/data/tokenizer"],
    "worker/llmc": ["common/base", "common/spec", "megatrain", "worker/checkpoint/format", "worker/checkpoint/inspect", "worker/hf"],
    "worker/memory": ["common/base", "kernels/core"],
    "worker/model": ["common/base", "common/layout", "common/spec", "kernels/core", "kernels/ops", "megatrain", "worker/data",
                     "worker/memory", "worker/parallel", "worker/params"],
    "worker/node/agent": ["common/base", "common/control", "common/gpu", "common/http", "common/layout", "common/metrics",
                          "common/report", "common/rpc", "megatrain", "worker/checkpoint/format", "worker/node/gpus",
                          "worker/node/loop", "worker/node/outbox", "worker/node/process", "worker/node/ranks",
                          "worker/node/tensorboard"],
    "worker/node/gpus": ["common/base", "common/control", "megatrain", "worker/node/loop", "worker/node/probe",
                         "worker/node/process"],
    "worker/node/loop": ["common/base"],
    "worker/node/outbox": ["megatrain"],
    "worker/node/probe": ["common/base", "common/gpu", "common/nvml"],
    "worker/node/process": ["common/base"],
    "worker/node/ranks": ["common/base", "common/control", "common/report", "megatrain", "worker/node/gpus", "worker/node/loop",
                          "worker/node/outbox", "worker/node/process", "worker/node/tensorboard"],
    "worker/node/shim": [],
    "worker/node/tensorboard": ["common/base", "common/spec", "common/tensorboard", "megatrain", "worker/node/process"],
    "worker/optim": ["common/base", "common/spec", "kernels/core", "kernels/ops", "megatrain", "worker/parallel",
                     "worker/params"],
    "worker/parallel": ["common/base", "common/layout", "kernels/core", "kernels/ops", "worker/comm", "worker/failure",
                        "worker/memory", "worker/params"],
    "worker/parallel/groups": ["common/base", "common/layout", "common/spec", "kernels/core", "megatrain", "worker/comm",
                               "worker/parallel/pipeline"],
    "worker/parallel/pipeline": ["common/base", "common/layout", "kernels/core", "worker/comm", "worker/parallel",
                                 "worker/parallel/schedule"],
    "worker/parallel/schedule": ["common/base", "megatrain"],
    "worker/params": ["common/base", "kernels/core", "kernels/ops", "worker/memory"],
    "worker/rank": ["common/base", "common/control", "common/nvml", "common/report", "common/rpc", "common/spec", "kernels/cpu",
                    "kernels/cuda", "kernels/ops", "megatrain", "worker/bench", "worker/checkpoint/format", "worker/comm",
                    "worker/comm/copies", "worker/comm/gloo", "worker/comm/nccl", "worker/comm/shm", "worker/decode",
                    "worker/decode/job", "worker/decode/scores", "worker/failure", "worker/parallel/groups",
                    "worker/train", "worker/train/job_data"],
    "worker/trace": ["common/base", "common/control", "common/layout", "common/report", "kernels/core", "megatrain",
                     "worker/checkpoint", "worker/comm", "worker/engine", "worker/parallel", "worker/parallel/groups",
                     "worker/parallel/pipeline"],
    "worker/train": ["common/base", "common/control", "common/layout", "common/report", "common/rpc", "common/spec",
                     "kernels/ops", "megatrain", "worker/checkpoint", "worker/checkpoint/format", "worker/checkpoint/inspect",
                     "worker/comm", "worker/data", "worker/data/tokenizer", "worker/engine", "worker/failure", "worker/hf", "worker/llmc",
                     "worker/memory", "worker/optim", "worker/parallel", "worker/parallel/groups", "worker/params", "worker/trace",
                     "worker/train/job_data", "worker/train/samples", "worker/train/setup", "worker/tuning"],
    "worker/train/samples": ["common/base", "common/control", "common/layout", "common/spec", "kernels/ops", "megatrain",
                             "worker/checkpoint", "worker/comm", "worker/data/tokenizer", "worker/decode", "worker/engine",
                             "worker/failure", "worker/memory", "worker/parallel", "worker/parallel/groups",
                             "worker/train/job_data"],
    "worker/train/setup": ["common/base", "common/spec", "megatrain", "worker/checkpoint", "worker/engine", "worker/failure",
                           "worker/memory"],
    "worker/train/job_data": ["common/base", "common/spec", "megatrain", "worker/data", "worker/data/tokenizer"],
    "worker/tuning": ["common/base", "kernels/core", "kernels/ops", "worker/checkpoint", "worker/failure"],
}

# Rows that hold for the folders below too, and why.
WHOLE = {
    "tests": "mirrors the tree, and may look at all of it",
}

GENERATED = "megatrain"  # the folder of generated headers

# Library headers and the only places that may include them.
CONFINED = [
    (re.compile(r"^(grpc|grpcpp)/|\.grpc\.pb\.h$"),
     ["common/rpc", "daemon/service", "daemon/main.cc", "client", "worker/rank", "worker/node/agent", "tests"]),
    (re.compile(r"^(cuda|cublas|cudnn|nvml)"), ["kernels/cuda", "kernels/bench/experiments", "tests/kernels/cuda"]),
    (re.compile(r"^nccl"), ["worker/comm/nccl", "tests/worker/comm"]),
    (re.compile(r"^gloo/"), ["worker/comm/gloo"]),
    (re.compile(r"^cblas|^openblas"), ["kernels/cpu", "kernels/bench"]),
    (re.compile(r"^unicode/"), ["worker/data/tokenizer"]),
    (re.compile(r"^sqlite3\.h$"), ["daemon/store", "tests/daemon"]),
    (re.compile(r"^spdlog/"), ["common/base"]),
    (re.compile(r"^boost/beast/"), ["common/http"]),
    (re.compile(r"^prometheus/"), ["common/metrics"]),
]

INCLUDE = re.compile(r'^\s*#\s*include\s*(["<])([^">]+)[">]')


def longest(path, prefixes):
    hits = [p for p in prefixes if path == p or path.startswith(p + "/")]
    return max(hits, key=len) if hits else None


def row_of(path, table, whole):
    """The row that holds for a file: that of its folder, or of a folder above that covers those below."""
    folder = path.rsplit("/", 1)[0]
    if path.startswith(GENERATED + "/"):
        return GENERATED
    return longest(folder, whole) or (folder if folder in table else None)


def includes_of(text):
    for number, line in enumerate(text.splitlines(), 1):
        match = INCLUDE.match(line)
        if match:
            yield number, match[1] == '"', match[2]


def check_file(path, text, table, whole, used):
    """Faults of one file; notes in `used` which edges its includes are: (row, row) -> where."""
    owner = row_of(path, table, whole)
    if owner is None:
        return [f"{path}: no row in the table for its folder"]
    faults = []
    for number, quoted, target in includes_of(text):
        where = f"{path}:{number}: includes {target}"
        faults += [f"{where}, which only {', '.join(places)} may"
                   for pattern, places in CONFINED if pattern.search(target) and longest(path, places) is None]
        generated = target.endswith(".pb.h")
        if generated and path.endswith(".h") and not path.startswith("tests/"):
            faults.append(f"{where}: generated headers stay out of our own headers")
        if not quoted and not generated:
            continue
        other = row_of(target, table, whole)
        if other is None:
            faults.append(f"{where}: no row in the table for that folder")
        elif other != owner:
            used[owner, other].append(where)
            if other not in table[owner] and "*" not in table[owner]:
                faults.append(f"{where}, but {owner} may include only {', '.join(table[owner]) or 'itself'}")
    return faults


def check_table(table, whole, files, used):
    """The table must be what is there."""
    faults = [f"{row}: may include {other}, but nothing does: take it out of the row"
              for row, others in table.items() for other in others if other != "*" and (row, other) not in used]
    faults += [f"{row}: has a row, but no file: take it out" for row in table if not any(row_of(f, table, whole) == row for f in files)]
    faults += [f"{row}: nothing lies in folders below: its row need not hold for them"
               for row in whole if not any(f.startswith(row + "/") and f.rsplit("/", 1)[0] != row for f in files)]
    return faults


def cycles_of(used):
    """The groups of rows that reach each other: each a sorted list."""
    targets = defaultdict(set)
    for source, target in used:
        targets[source].add(target)

    def reach(row):
        seen, left = set(), [row]
        while left:
            fresh = targets[left.pop()] - seen
            seen |= fresh
            left += fresh
        return seen

    reached = {row: reach(row) for row in list(targets)}
    groups = {tuple(sorted(other for other in reached[row] if row in reached.get(other, ()))) for row in reached if row in reached[row]}
    return sorted(map(list, groups))


def show_cycle(rows, used):
    """One cycle among these rows, the shortest, and every include that closes the group; edges of few includes, the likely cuts, first."""
    def shortest(begin):
        paths = [[begin]]
        while True:
            for path in paths:
                if (path[-1], begin) in used:
                    return [*path, begin]
            paths = [[*path, row] for path in paths for row in rows if (path[-1], row) in used and row not in path]

    lines = ["folders include each other in a cycle: " + " -> ".join(min((shortest(row) for row in rows), key=len))]
    edges = sorted((edge for edge in used if edge[0] in rows and edge[1] in rows), key=lambda edge: (len(used[edge]), edge))
    for edge in edges:
        lines.append(f"  {edge[0]} -> {edge[1]}: {len(used[edge])} includes")
        lines += [f"    {where}" for where in used[edge][:6]]
    return "\n".join(lines)


def check(texts, table, whole):
    used = defaultdict(list)
    faults = [fault for path, text in texts.items() for fault in check_file(path, text, table, whole, used)]
    return faults + check_table(table, whole, list(texts), used) + [show_cycle(rows, used) for rows in cycles_of(used)]


def print_table(texts):
    """The table as the tree is, in the order of folders; tests are one row."""
    whole = {"tests": ""}
    table = dict.fromkeys(sorted({longest(path, whole) or path.rsplit("/", 1)[0] for path in texts}), ("*",))
    used = defaultdict(list)
    for path, text in texts.items():
        check_file(path, text, table, whole, used)
    for row in table:
        others = ['"*"'] if row in whole else [f'"{other}"' for other in sorted(other for source, other in used if source == row)]
        head = f'    "{row}": ['
        lines = [head]
        for index, other in enumerate(others):
            piece = other + ("]," if index == len(others) - 1 else ", ")
            if len(lines[-1]) + len(piece.rstrip()) > 130:
                lines[-1] = lines[-1].rstrip()
                lines.append(" " * len(head))
            lines[-1] += piece
        print("\n".join(lines) + ("]," if not others else ""))
    for rows in cycles_of(used):
        print("\n# " + show_cycle(rows, used).replace("\n", "\n# "))


def self_test():
    """Each check must see an offence of its kind, and let a lawful tree pass."""
    table = {"common/base": [], "worker/comm": ["common/base"], "worker/comm/gloo": ["worker/comm"], "tests": ["*"],
             "daemon": ["common/base", "megatrain"]}
    whole = {"tests": "", "daemon": ""}
    tree = {
        "common/base/a.h": "#include <vector>",
        "worker/comm/a.h": '#include "common/base/a.h"',
        "worker/comm/gloo/a.cc": '#include "worker/comm/a.h"\n#include <gloo/context.h>',
        "daemon/main.cc": '#include "common/base/a.h"',
        "daemon/core/a.cc": '#include "megatrain/v1/a.pb.h"\n#include "daemon/core/a.h"',
        "tests/comm/a.cc": '#include "worker/comm/a.h"',
    }

    def faults(**changes):
        return check(tree | {path.replace("__", "/") + ".h": text for path, text in changes.items()}, table, whole)

    assert not faults(), faults()
    upward = faults(common__base__b='#include "daemon/a.h"')
    assert "may include only itself" in upward[0] and "common/base -> daemon -> common/base" in upward[1], upward
    assert len(faults(worker__comm__b='#include "worker/comm/gloo/a.h"')) == 2  # a subfolder is another folder, and here a cycle
    assert "no row" in faults(elsewhere__a="")[0] and "no row" in faults(daemon__a='#include "elsewhere/a.h"')[0]
    assert "no row" in faults(worker__comm__threads__a="")[0]
    assert "which only" in faults(daemon__jobs__a="#include <grpcpp/grpcpp.h>")[0]
    assert "which only" in faults(worker__comm__b="#include <cuda_runtime.h>")[0]
    assert "stay out" in faults(daemon__a='#include "megatrain/v1/job.pb.h"')[0]
    assert check(tree, table | {"worker/comm": ["common/base", "daemon"]}, whole) == \
        ["worker/comm: may include daemon, but nothing does: take it out of the row"]
    assert "no file" in check(tree, table | {"gone": []}, whole)[0]
    assert "nothing lies in folders below" in check(tree, table, whole | {"common/base": ""})[0]
    three = {("a", "b"): ["x"], ("b", "c"): ["x"], ("c", "a"): ["x"], ("c", "d"): ["x"], ("e", "a"): ["x"]}
    assert cycles_of(three) == [["a", "b", "c"]] and "a -> b -> c -> a" in show_cycle(["a", "b", "c"], three)


def main():
    self_test()
    arguments = [argument for argument in sys.argv[1:] if argument != "--print"]
    root = Path(arguments[0] if arguments else ".")
    texts = {path: (root / path).read_text(errors="replace") for path in tree_files(root, CPP)}
    if "--print" in sys.argv[1:]:
        return print_table(texts)
    faults = check(texts, ALLOWED, WHOLE)
    print("\n".join(faults) if faults else f"{len(texts)} files, all includes follow the arrows, without a cycle")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
