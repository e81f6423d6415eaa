#!/usr/bin/env python3
"""Gathers and sums by copies between tensor ranks, each a small program of its own, and kills one of them again and again.

    MT_BIN=build/cuda-release/bin tests/gpu/tensor_members.py [--gpus 1] [--ranks 2] [--mib 16] [--rounds 200] [--kills 5]

First the rounds run to their end, where all results are compared with what must come out. Then a rank is killed (SIGKILL) in the middle of
them; nobody notices a death inside a host but who watches the processes, as the agents of nodes do, so the others are told (SIGUSR1), abort
their group and must be gone within 10 s. --gpus 1: all ranks on one GPU. A line for each; exit code 1 if one failed.
"""
import argparse
import random
import sys
import time

from members import Members

ENDS_WITHIN = 120  # seconds


def ranks_of(args, rounds):
    return Members("rank", "mt_tensor_member", [(rank, args.ranks, rank % args.gpus, args.mib, rounds) for rank in range(args.ranks)])


def run_rounds(args):
    """What went wrong, or ""; and what the first rank says of its rate."""
    with ranks_of(args, args.rounds) as ranks:
        wrong = ranks.start()
        return (wrong, "") if wrong else ranks.end(ENDS_WITHIN)


def kill_one(args, victim, delay):
    """What went wrong, or ""; and the seconds until all others were gone."""
    with ranks_of(args, 0) as ranks:
        wrong = ranks.start()
        if wrong:
            return wrong, 0
        time.sleep(delay)
        return ranks.kill(victim)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--mib", type=int, default=16, help="size of a gathered tensor")
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--kills", type=int, default=5)
    args = parser.parse_args()
    chance = random.Random(7)
    wrong, said = run_rounds(args)
    failures = int(bool(wrong))
    print(f"{args.ranks} ranks on {args.gpus} GPU(s), {args.mib} MiB: {wrong or said}", flush=True)
    for trial in range(args.kills):
        victim = trial % args.ranks
        wrong, seconds = kill_one(args, victim, chance.uniform(0, 0.2))
        failures += bool(wrong)
        print(f"kill {trial + 1} of {args.kills}: rank {victim}: {wrong or f'the others were gone after {seconds:.2f} s'}", flush=True)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
