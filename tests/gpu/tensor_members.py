#!/usr/bin/env python3
"""Gathers and sums by copies between tensor ranks, each a small program of its own, and kills one of them again and again.

    MT_BIN=build/cuda-release/bin tests/gpu/tensor_members.py [--gpus 1] [--ranks 2] [--mib 16] [--rounds 200] [--kills 5]

First the rounds run to their end, where all results are compared with what must come out. Then a rank is killed (SIGKILL) in the middle of
them; nobody notices a death inside a host but who watches the processes, as the agents of nodes do, so the others are told (SIGUSR1), abort
their group and must be gone within 10 s. --gpus 1: all ranks on one GPU. A line for each; exit code 1 if one failed.
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

LEAVES_WITHIN = 10  # seconds
ENDS_WITHIN = 120  # seconds


class Ranks:
    """The programs, in a folder of their own."""

    def __init__(self, args, rounds):
        self.folder = tempfile.TemporaryDirectory()
        program = pathlib.Path(os.environ.get("MT_BIN", "build/cuda-release/bin")) / "mt_tensor_member"
        meet = pathlib.Path(self.folder.name) / "meet"
        self.members = [subprocess.Popen(
            [program, meet, str(rank), str(args.ranks), str(rank % args.gpus), str(args.mib), str(rounds)], stdout=subprocess.PIPE,
            text=True, env={**os.environ, "CUDA_DEVICE_MAX_CONNECTIONS": "32", "CUDA_MODULE_LOADING": "EAGER"})
            for rank in range(args.ranks)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for member in self.members:
            member.kill()
            member.wait()
            member.stdout.close()
        self.folder.cleanup()

    def start(self):
        """What went wrong, or ""."""
        for rank, member in enumerate(self.members):
            line = member.stdout.readline().strip()
            if line != "running":
                return f"rank {rank} does not run: {line}"
        return ""


def run_rounds(args):
    """What went wrong, or ""; and what the first rank says of its rate."""
    with Ranks(args, args.rounds) as ranks:
        wrong = ranks.start()
        said = ""
        for rank, member in enumerate(ranks.members if not wrong else []):
            try:
                lines = member.communicate(timeout=ENDS_WITHIN)[0].splitlines()
            except subprocess.TimeoutExpired:
                return f"rank {rank} does not come to its end within {ENDS_WITHIN} s", said
            if not lines or lines[-1] != "OK":
                return f"rank {rank} ends with: {lines[-1:]}", said
            said = said or lines[0]
        return wrong, said


def kill_one(args, victim, delay):
    """What went wrong, or ""; and the seconds until all others were gone."""
    with Ranks(args, 0) as ranks:
        wrong = ranks.start()
        if wrong:
            return wrong, 0
        time.sleep(delay)
        ranks.members[victim].kill()
        begin = time.monotonic()
        others = [member for rank, member in enumerate(ranks.members) if rank != victim]
        for other in others:
            other.send_signal(signal.SIGUSR1)
        for other in others:
            try:
                said = other.communicate(timeout=max(0.1, begin + LEAVES_WITHIN - time.monotonic()))[0].strip()
            except subprocess.TimeoutExpired:
                return f"a rank is still there after {LEAVES_WITHIN} s", LEAVES_WITHIN
            if other.returncode != 0 or not said.startswith(("ABORTED: ", "UNAVAILABLE: ")):
                return f"a rank ends with {other.returncode}: {said}", time.monotonic() - begin
        return "", time.monotonic() - begin


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
