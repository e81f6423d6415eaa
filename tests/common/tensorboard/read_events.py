#!/usr/bin/env python3
"""Reads event files by PyPI's tensorboard in three ways, its default (Rust) loader, the slow one and EventAccumulator, and compares what
they show. Outside CI: it needs `pip install tensorboard==2.21.0 tensorboard-data-server==0.7.2 "setuptools<81"`.

    python3 read_events.py FOLDER    of one job: LOG_ROOT/CURVES/NAME-UID8, or one with a file of `mtctl metrics JOB --all -o tensorboard`

Prints each tag with the steps that all three have, what only some have, and exits 1 where they differ.
"""
import json
import math
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def by_accumulator(folder):
    events = EventAccumulator(str(folder), size_guidance={"scalars": 0})
    events.Reload()
    return {tag: {event.step: event.value for event in events.Scalars(tag)} for tag in events.Tags()["scalars"]}


def by_server(folder, *options):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(folder), "--host", "127.0.0.1", "--port", str(port)]
    server = subprocess.Popen([*command, "--samples_per_plugin", "scalars=1000000", *options], stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL)

    def get(path, **query):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/data/plugin/scalars/{path}?{urllib.parse.urlencode(query)}") as answer:
            return json.loads(answer.read())

    def all_curves():
        return {tag: {step: float(value) for _, step, value in get("scalars", run=run, tag=tag)}
                for run, tags in get("tags").items() for tag in tags}

    try:
        seen, deadline = None, time.time() + 300
        while time.time() < deadline:
            time.sleep(1)
            try:
                now = all_curves()
            except (urllib.error.URLError, ConnectionError):
                continue
            # The loaders read in the background: done when two looks in a row are the same.
            if now and repr(now) == repr(seen):
                return now
            seen = now
        raise SystemExit(f"tensorboard {' '.join(options)} shows no settled curves")
    finally:
        server.terminate()
        server.wait()


def same(a, b):
    return a.keys() == b.keys() and all(a[step] == b[step] or math.isnan(a[step]) and math.isnan(b[step]) for step in a)


def main():
    folder = Path(sys.argv[1])
    readers = {"EventAccumulator": by_accumulator(folder), "default": by_server(folder), "slow": by_server(folder, "--load_fast=false")}
    wanted, differ = readers["EventAccumulator"], False
    for tag in sorted(set().union(*readers.values())):
        print(f"{tag}: {len(wanted.get(tag, {}))} points")
        for name, curves in readers.items():
            if not same(curves.get(tag, {}), wanted.get(tag, {})):
                print(f"  {name} shows {curves.get(tag, {})}, EventAccumulator {wanted.get(tag, {})}")
                differ = True
    return 1 if differ else 0


if __name__ == "__main__":
    sys.exit(main())
