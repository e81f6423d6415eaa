#!/usr/bin/env python3
"""Sends parcels between the stages of a pipeline, each a small program of its own, and kills one of them again and again.

    MT_BIN=build/cuda-release/bin tests/gpu/link_members.py [--gpus 2] [--stages 2] [--passes 200] [--kills 10] [--links any,nccl]

First every schedule runs to its end over each kind of links, where all that arrives is compared with what must. Then a stage is killed
(SIGKILL) in the middle of passes; nobody notices a death inside a host but who watches the processes, as the agents of nodes do, so the
others are told (SIGUSR1), abort their links and must be gone within 10 s, and the memory of the GPUs must be free. --gpus 1: all stages on
one GPU (with links of kind "any" alone: NCCL takes one rank a GPU). --gpus 0: on the CPU. A line for each; exit code 1 if one failed.
"""
import argparse
import os
import random
import subprocess
import sys
import time

from members import Members

SCHEDULES = ["1f1b", "gpipe", "interleaved"]
FREE_WITHIN = 10  # seconds
ENDS_WITHIN = 240  # seconds
USED_BY_NOBODY = 600  # MiB: what a driver keeps of a GPU without programs


def memory_used(gpus):
    ids = os.environ.get("CUDA_VISIBLE_DEVICES")
    done = subprocess.run(["nvidia-smi", *(["-i", ids] if ids else []), "--query-gpu=memory.used", "--format=csv,noheader,nounits"],
                          capture_output=True, text=True, timeout=30, check=True)
    return [int(line) for line in done.stdout.split()][:gpus]


def stages_of(args, links, schedule, passes):
    return Members("stage", "mt_link_member", [
        (stage, args.stages, stage % args.gpus if args.gpus else "cpu", links, schedule, args.mib, passes) for stage in range(args.stages)])


def run_passes(args, links, schedule):
    """What went wrong, or ""; and what the first stage says of its rate."""
    with stages_of(args, links, schedule, args.passes) as stages:
        wrong = stages.start()
        return (wrong, "") if wrong else stages.end(ENDS_WITHIN)


def kill_one(args, links, schedule, victim, delay):
    """What went wrong, or ""; and the seconds until all others were gone."""
    with stages_of(args, links, schedule, 0) as stages:
        wrong = stages.start()
        if wrong:
            return wrong, 0
        time.sleep(delay)
        wrong, seconds = stages.kill(victim)
    limit = time.monotonic() + FREE_WITHIN
    while not wrong and args.gpus and max(memory_used(args.gpus)) >= USED_BY_NOBODY:
        if time.monotonic() > limit:
            return f"memory is still in use: {memory_used(args.gpus)} MiB", seconds
        time.sleep(0.1)
    return wrong, seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpus", type=int, default=2)
    parser.add_argument("--stages", type=int, default=2)
    parser.add_argument("--mib", type=int, default=16, help="size of a parcel")
    parser.add_argument("--passes", type=int, default=200)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--links", help="any, nccl or any,nccl; what the GPUs allow unless given")
    args = parser.parse_args()
    kinds = args.links.split(",") if args.links else ["any", "nccl"] if 1 < args.gpus == args.stages else ["any"]
    chance = random.Random(11)
    failures = 0
    for links in kinds:
        for schedule in SCHEDULES if args.passes else []:
            wrong, said = run_passes(args, links, schedule)
            failures += bool(wrong)
            print(f"links {links}, {schedule}: {wrong or said}", flush=True)
    for trial in range(args.kills):
        links, schedule, victim = kinds[trial % len(kinds)], SCHEDULES[trial % len(SCHEDULES)], trial % args.stages
        wrong, seconds = kill_one(args, links, schedule, victim, chance.uniform(0, 0.2))
        failures += bool(wrong)
        print(f"kill {trial + 1} of {args.kills}: stage {victim}, links {links}, {schedule}: "
              f"{wrong or f'the others were gone after {seconds:.2f} s'}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
