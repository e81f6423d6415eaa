#!/usr/bin/env python3
"""Compares training speed with a peer: runs both in turn on this machine, ours first in every other pair (A B B A ...), takes the
median step that each prints, and prints each pair's ratio, the peer's step over ours. The claim is the lowest ratio but one.

    scripts/bench_peers.py --pairs 5 --must 1.03 \\
        --ours 'mt-rank --standalone deploy/examples/bench-124m_s1024b32_gpu.yaml --bench' \\
        --peer 'python3 bench_torch.py --preset d12 --mb 32 --steps 50 --warmup 10 --opt flat --compile block'

Either program prints "median 62.31 ms"; another form is a --pattern with one group, milliseconds. --peer may be given several times:
the fastest of them in the pair counts. Exit code 0: at or above --must (or none given); 1: below; 2: a run failed.
"""
import argparse
import re
import shlex
import subprocess
import sys
import time
from pathlib import Path

PATTERN = r"median\s+([0-9.]+)\s*ms"


class Failed(Exception):
    pass


def run(name, command, pattern, timeout, logs):
    """Median milliseconds of a step that the command prints."""
    began = time.monotonic()
    try:
        done = subprocess.run(shlex.split(command), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=timeout,
                              stdin=subprocess.DEVNULL)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Failed(f"{name}: {error}") from error
    if logs:
        (logs / f"{name}.log").write_text(done.stdout)
    found = re.findall(pattern, done.stdout)
    if done.returncode != 0 or not found:
        what = f"exit code {done.returncode}" if done.returncode != 0 else "no median in its output"
        raise Failed(f"{name}: {what}\n" + "\n".join(done.stdout.splitlines()[-12:]))
    print(f"  {name}: {float(found[-1]):.3f} ms ({time.monotonic() - began:.0f} s)", flush=True)
    return float(found[-1])


def compare(args):
    """The ratio of each pair."""
    logs = Path(args.logs) if args.logs else None
    if logs:
        logs.mkdir(parents=True, exist_ok=True)
    ratios = []
    for pair in range(1, args.pairs + 1):
        def ours():
            return run(f"ours-{pair}", args.ours, args.pattern, args.timeout, logs)

        def peer():
            return min(run(f"peer-{pair}" + (f"-{i}" if len(args.peer) > 1 else ""), command, args.pattern, args.timeout, logs)
                       for i, command in enumerate(args.peer, 1))

        if pair % 2 == 1:
            a = ours()
            b = peer()
        else:
            b = peer()
            a = ours()
        ratios.append(b / a)
        print(f"pair {pair}: ours {a:.3f} ms, peer {b:.3f} ms, ratio {b / a:.4f}", flush=True)
    return ratios


def claim(ratios):
    """What may be said: the lowest pair but one; of fewer than five pairs the lowest."""
    ordered = sorted(ratios)
    return ordered[1] if len(ordered) >= 5 else ordered[0]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ours", required=True, help="command of our benchmark")
    parser.add_argument("--peer", required=True, action="append", help="command of the peer's")
    parser.add_argument("--pairs", type=int, default=5)
    parser.add_argument("--must", type=float, default=0, help="the ratio to reach")
    parser.add_argument("--pattern", default=PATTERN)
    parser.add_argument("--timeout", type=float, default=600, help="seconds of one run")
    parser.add_argument("--logs", help="folder for the output of each run")
    args = parser.parse_args()
    if args.pairs < 1:
        parser.error("--pairs must be at least 1")
    try:
        ratios = compare(args)
    except Failed as failure:
        print(f"bench_peers: {failure}", file=sys.stderr)
        return 2
    ordered = sorted(ratios)
    which = "lowest but one" if len(ordered) >= 5 else "lowest"
    print(f"ratios {' '.join(f'{r:.4f}' for r in ordered)}; {which} {claim(ratios):.4f}"
          + (f", must {args.must}: {'reached' if claim(ratios) >= args.must else 'NOT reached'}" if args.must else ""))
    return 0 if claim(ratios) >= args.must else 1


if __name__ == "__main__":
    sys.exit(main())
