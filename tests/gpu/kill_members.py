#!/usr/bin/env python3
"""Kills one of two small programs in the middle of a collective over NCCL, again and again, each program on a GPU of its own.

    MT_BIN=build/cuda-release/bin tests/gpu/kill_members.py [--kills 10]

Nobody notices a death inside a host but who watches the processes, as the agents of nodes do: the survivor is told (SIGUSR1), aborts its
group and must be gone within 10 s, and the memory of both GPUs must be free. A line for each kill; exit code 1 if one did not end so.
"""
import argparse
import os
import pathlib
import random
import signal
import subprocess
import sys
import tempfile
import time

OPERATIONS = ["all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all"]
LEAVES_WITHIN = 10  # seconds
FREE_WITHIN = 10  # seconds
USED_BY_NOBODY = 600  # MiB: what a driver keeps of a GPU without programs


def memory_used():
    ids = os.environ.get("CUDA_VISIBLE_DEVICES")
    done = subprocess.run(["nvidia-smi", *(["-i", ids] if ids else []), "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
                          capture_output=True, text=True, timeout=30, check=True)
    return [int(line) for line in done.stdout.split()][:2]


def start(folder, index, operation):
    program = pathlib.Path(os.environ.get("MT_BIN", "build/cuda-release/bin")) / "mt_nccl_member"
    return subprocess.Popen([program, "gpu", folder, str(index), "2", operation], stdout=subprocess.PIPE, text=True,
                            env={**os.environ, "NCCL_NVLS_ENABLE": "0"})


def kill_one(folder, victim, operation, delay):
    """What went wrong, or ""; and the seconds until the survivor was gone."""
    members = [start(folder, index, operation) for index in range(2)]
    try:
        for index, member in enumerate(members):
            line = member.stdout.readline().strip()
            if line != "running":
                return f"member {index} does not run: {line}", 0
        time.sleep(delay)
        members[victim].kill()
        begin = time.monotonic()
        survivor = members[1 - victim]
        survivor.send_signal(signal.SIGUSR1)
        try:
            said = survivor.communicate(timeout=LEAVES_WITHIN)[0]
        except subprocess.TimeoutExpired:
            return f"the survivor is still there after {LEAVES_WITHIN} s", LEAVES_WITHIN
        seconds = time.monotonic() - begin
        if survivor.returncode != 0 or not said.startswith("ABORTED: group members"):
            return f"the survivor ends with {survivor.returncode}: {said.strip()}", seconds
    finally:
        for member in members:
            member.kill()
            member.wait()
    limit = time.monotonic() + FREE_WITHIN
    while max(memory_used()) >= USED_BY_NOBODY:
        if time.monotonic() > limit:
            return f"memory is still in use: {memory_used()} MiB", seconds
        time.sleep(0.1)
    return "", seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=10)
    kills = parser.parse_args().kills
    chance = random.Random(11)
    failures = 0
    for trial in range(kills):
        operation = OPERATIONS[trial % len(OPERATIONS)]
        with tempfile.TemporaryDirectory() as folder:
            wrong, seconds = kill_one(folder, trial % 2, operation, chance.uniform(0, 0.2))
        failures += bool(wrong)
        print(f"kill {trial + 1} of {kills}: member {trial % 2} in {operation}: {wrong or f'the other was gone after {seconds:.2f} s'}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
