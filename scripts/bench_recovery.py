#!/usr/bin/python3
"""How long a job stands still because one of its ranks was killed: seconds from SIGKILL to the first step beyond the best so far.

A cluster of its own on loopback: coordinator, one worker, one job after another, each killed once in one of its ranks after its first
save (a second fault of the same job would wait by R2). The checkpoints are in the page cache. Prints each trial, then p50 and p95, and
where the time went by the job's events.

Usage: bench_recovery.py [--trials N] [--gpu | --layout TPxPPxDP] [--set FIELD=VALUE]...
       --gpu: gpt3-1.3b in bf16 on one GPU (60 GB of disk, 64 GB of memory); without it a small model on CPU slots, 2x2x1
"""
import argparse
import json
import os
import pathlib
import signal
import statistics
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from free_port import free_port  # noqa: E402  (found by the path above)

SMALL = """
name: small
model: {layers: 2, hidden_size: 32, heads: 2, seq_length: 32, vocab_size: 256}
data: {mock: true}
training: {train_iters: 1000000, micro_batch_size: 2, global_batch_size: 8}
optimizer: {lr: 1.0e-3}
checkpoint: {every_iters: 20, keep_last: 2}
placement: {device: cpu}
"""
GPU = """
name: gpu
model: {layers: 24, hidden_size: 2048, heads: 16, seq_length: 2048, vocab_size: 50304}
data: {mock: true}
training: {train_iters: 1000000, micro_batch_size: 4, global_batch_size: 4, precision: bf16}
optimizer: {lr: 1.0e-4}
checkpoint: {every_iters: 60, keep_last: 2}
placement: {device: gpu}
"""


class Cluster:
    def __init__(self, folder, binaries, slots, gpu):
        self.dir, self.bin = folder, binaries
        self.port = free_port()
        self.env = dict(os.environ, MTCTL_COORDINATOR=f"127.0.0.1:{self.port}", HOME=str(folder), XDG_STATE_HOME=str(folder / "s"))
        for name in ("ckpt", "data"):
            (folder / name).mkdir()
        self.run("mt-coordinator", "init", "--state", str(folder / "coordinator"))
        self.log = open(folder / "log", "ab")
        self.processes = [
            self.start("mt-coordinator", "--listen", f"127.0.0.1:{self.port}", "--state", str(folder / "coordinator")),
            self.start("mt-worker", "--coordinator", f"127.0.0.1:{self.port}", "--node", "node-a", "--cpu-slots", str(slots), "--gpus",
                       "all" if gpu else "none", "--state", str(folder / "node-a"), "--data-root", str(folder / "data"),
                       "--checkpoint-root", str(folder / "ckpt"), "--log-root", str(folder / "logs"))]
        self.until("a ready node", lambda: any(n["state"] == "NODE_READY" for n in self.shown("get", "nodes").get("nodes", [])))

    def run(self, program, *args, check=True):
        done = subprocess.run([str(self.bin / program), *args], env=self.env, capture_output=True, text=True, check=False,
                              stdin=subprocess.DEVNULL)
        if check and done.returncode != 0:
            raise SystemExit(f"{program} {' '.join(args)}: {done.returncode}\n{done.stderr}")
        return done

    def start(self, program, *args):
        return subprocess.Popen([str(self.bin / program), *args], env=self.env, stdout=self.log, stderr=self.log,
                                stdin=subprocess.DEVNULL)

    def shown(self, *words):
        done = self.run("mtctl", "-o", "json", *words, check=False)
        return json.loads(done.stdout) if done.returncode == 0 else {}

    def until(self, what, condition, limit=300):
        end = time.monotonic() + limit
        while time.monotonic() < end:
            found = condition()
            if found:
                return found
            time.sleep(0.02)
        raise SystemExit(f"{what}: not within {limit} s; see {self.log.name}")

    def end(self):
        self.processes[1].terminate()
        self.processes[1].wait()
        self.run("mt-worker", "stop-ranks", "--state", str(self.dir / "node-a"), check=False)
        self.processes[0].terminate()
        self.processes[0].wait()


def step_of(job):
    return int(job.get("last_step", {}).get("step", 0))


def trial(cluster, file, name, sets, rank):
    """One job: seconds without a new step, and the times of its events since the kill."""
    words = [word for one in (f"name={name}", *sets) for word in ("--set", one)]
    cluster.run("mtctl", "submit", "-f", str(file), *words)
    saved = cluster.until("a save", lambda: (j := cluster.shown("describe", name)).get("last_checkpoint") and j)
    pid = int(next(r["pid"] for r in saved["ranks"] if int(r.get("rank", 0)) == rank))
    best = step_of(cluster.shown("describe", name))
    began, began_us = time.monotonic(), time.time_ns() // 1000
    os.kill(pid, signal.SIGKILL)
    # Steps after this look and before the kill are counted as well: the best is what the verdict names.
    closed = cluster.until("the fault's verdict", lambda: (j := cluster.shown("describe", name)).get("restarts", {}).get("step") and j)
    best = max(best, int(closed["restarts"]["step"]))
    job = cluster.until("a new step", lambda: step_of(j := cluster.shown("describe", name)) > best and j["epoch"] > saved["epoch"] and j)
    seconds = time.monotonic() - began
    events = [(event["type"], (int(event["time_us"]) - began_us) / 1e6) for event in cluster.shown("get", "events", name)["events"]
              if int(event["time_us"]) >= began_us]
    cluster.run("mtctl", "kill", name, "--yes", "--wait")
    return seconds, best - int(job["resumed_from_step"]), events


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=10)
    parser.add_argument("--gpu", action="store_true")
    parser.add_argument("--layout", default="2x2x1")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--bin", type=pathlib.Path, default=os.environ.get("MT_BIN", ROOT / "build/cuda-release/bin"))
    options = parser.parse_args()
    sizes = [1, 1, 1] if options.gpu else [int(size) for size in options.layout.split("x")]
    ranks = sizes[0] * sizes[1] * sizes[2]
    sets = [f"parallel.{axis}={size}" for axis, size in zip(("tensor", "pipeline", "data"), sizes)] + options.set
    with tempfile.TemporaryDirectory(prefix="bench-recovery-") as folder:
        file = pathlib.Path(folder) / "job.yaml"
        file.write_text(GPU if options.gpu else SMALL)
        cluster = Cluster(pathlib.Path(folder), options.bin, 0 if options.gpu else ranks, options.gpu)
        try:
            times = []
            for number in range(options.trials):
                seconds, again, events = trial(cluster, file, f"trial-{number}", sets, number % ranks)
                times.append(seconds)
                told = ", ".join(f"{kind} {at:.2f}" for kind, at in events)
                print(f"trial {number}: rank {number % ranks} killed, {seconds:.2f} s, {again} steps again ({told})", flush=True)
                subprocess.run(["rm", "-rf", f"{folder}/ckpt/default/trial-{number}"], check=True)
        finally:
            cluster.end()
    times.sort()
    p95 = times[min(len(times) - 1, int(0.95 * len(times)))]
    print(f"{len(times)} trials: p50 {statistics.median(times):.2f} s, p95 {p95:.2f} s, most {times[-1]:.2f} s")


if __name__ == "__main__":
    main()
