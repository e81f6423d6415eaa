"""A coordinator and workers as processes of the test's own, so that it can kill and restart each of them.

`mtctl` finds them through MTCTL_COORDINATOR. Every restart uses the same port and the same state folder.
"""
import json
import os
import pathlib
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

from free_port import free_port  # noqa: E402  (found by the path above)
import processes  # noqa: E402
from harness import BEHIND, BIN, ClusterTest  # noqa: E402
from processes import alive_with  # noqa: E402


# Flags of a coordinator whose lost nodes a test waits for. L1 may be as short as 4 and 6 s; below these here a machine that lets one
# worker stand still for longer than six seconds, three heartbeats, would have a healthy one lost, which is back with its next word. What
# the coordinator itself stands still counts for no lease.
SOON_LOST = ("--suspect-after", "4", "--lost-after", "8")


# Becomes mt-rank, behind all else (harness.BEHIND). A shim and its rank are a session, which the kernel schedules as one where it has
# autogroups; elsewhere each process counts by itself. mt-worker asks mt-rank (--check-blas) in the session of all tests: that one is left
# alone.
RANK = """#!/bin/sh
read -r pid name state parent group session rest < /proc/$$/stat
[ "$session" = "$parent" ] || exec {rank} "$@"
echo {behind} 2> /dev/null > /proc/self/autogroup
exec nice -n {behind} {rank} "$@"
"""


def make_store(state):
    """As an operator does once for a new cluster; a folder that is there is left alone, whatever is in it."""
    if not state.exists():
        subprocess.run([str(BIN / "mt-coordinator"), "init", "--state", str(state)], check=True, capture_output=True, timeout=30)


def shown_epoch(job):
    """The epoch of a described job as programs show it: term and count within the term."""
    return "{}.{}".format(*divmod(job["epoch"], 2**20))


class ServiceTest(ClusterTest):
    """Default: a coordinator and one worker "node-a" with two CPU slots."""

    autostart = True
    stop_seconds = 60  # in which a worker, and what stops its ranks, has to end

    def setUp(self):
        super().setUp()
        self.port = free_port()
        self.http_port = free_port()
        self.env["MTCTL_COORDINATOR"] = f"127.0.0.1:{self.port}"
        self.coordinator = None
        self.workers = {}
        self.worker_args = {}
        self.last_start_us = 0  # of a coordinator or a worker
        self.rank = self.dir / "rank"
        self.rank.write_text(RANK.format(rank=shlex.quote(str(BIN / "mt-rank")), behind=BEHIND))
        self.rank.chmod(0o755)
        self.addCleanup(self.stop_all)
        if self.autostart:
            self.start_coordinator()
            self.start_worker("node-a", 2)
            self.wait_nodes(1)

    def stop_all(self):
        """Kills what is left; ranks may outlive their agents on purpose."""
        for process in [self.coordinator, *self.workers.values()]:
            if process is not None and process.poll() is None:
                process.kill()
                process.wait()

    def tearDown(self):
        for name in list(self.worker_args):
            with self.subTest(f"the end of {name}"):  # one that will not end keeps none of the rest from being ended
                self.stop_worker(name, signal.SIGTERM)
            with self.subTest(f"the end of the ranks of {name}"):
                subprocess.run([str(BIN / "mt-worker"), "stop-ranks", "--state", str(self.dir / name)],
                               capture_output=True, timeout=self.stop_seconds, env=self.env)
        self.stop_all()
        super().tearDown()

    # --- Processes.
    def start_coordinator(self, *flags):
        make_store(self.dir / "coordinator")
        self.last_start_us = time.time_ns() // 1000
        log = open(self.dir / "coordinator.log", "ab")
        self.coordinator = subprocess.Popen(
            [str(BIN / "mt-coordinator"), "--listen", f"127.0.0.1:{self.port}", "--state", str(self.dir / "coordinator"),
             "--http-listen", f"127.0.0.1:{self.http_port}", *flags],
            stderr=log, stdout=log, env=self.env, stdin=subprocess.DEVNULL)
        log.close()

    def kill_coordinator(self):
        self.coordinator.kill()
        self.coordinator.wait()

    def start_worker(self, name, slots, *flags):
        if name not in self.worker_args:
            if self.gpus == "none" and not {"--gpus", "--rank-binary"} & set(flags):  # beside mt-rank lies the module for GPUs
                flags = (*flags, "--rank-binary", str(self.rank))
            self.worker_args[name] = (slots, flags, free_port())
        slots, flags, http = self.worker_args[name]
        self.last_start_us = time.time_ns() // 1000
        log = open(self.dir / f"{name}.log", "ab")
        self.workers[name] = subprocess.Popen(
            [str(BIN / "mt-worker"), "--coordinator", f"127.0.0.1:{self.port}", "--node", name, "--cpu-slots", str(slots),
             *(() if "--gpus" in flags else ("--gpus", self.gpus)), "--state", str(self.dir / name), "--data-root", str(self.dir / "data"),
             "--checkpoint-root", str(self.dir / "ckpt"), "--log-root", str(self.dir / "logs"),
             "--http-listen", f"127.0.0.1:{http}", *flags],
            stderr=log, stdout=log, env=self.env, stdin=subprocess.DEVNULL)
        log.close()

    def stop_worker(self, name, how=signal.SIGKILL):
        processes.end(self.workers.get(name), how, self.stop_seconds, name)

    def wait_api(self, limit=60):
        def up():
            try:
                with socket.create_connection(("127.0.0.1", self.port), timeout=1):
                    return self.mtctl("get", "nodes", check=False).returncode == 0
            except OSError:
                return False
        self.wait_for("the API", up, limit)

    def wait_nodes(self, count, limit=60):
        """As many nodes are ready; not by the store alone, from which a coordinator that starts knows them: each has been heard since
        the last start of a program."""
        def ready():
            found = [n for n in self.nodes_or_none() if n["state"] == "NODE_READY"]
            return len(found) == count and all(int(n["last_heartbeat_us"]) >= self.last_start_us for n in found)
        self.wait_for(f"{count} ready nodes", ready, limit)

    def wait_heartbeats(self, count, name="node-a"):
        """The node is heard so often again, which tells each time what it holds and what its ranks have counted."""
        def heard():
            return next((int(n["last_heartbeat_us"]) for n in self.nodes_or_none() if n["name"] == name), 0)
        for _ in range(count):
            last = heard()
            self.wait_for(f"a heartbeat of {name}", lambda: heard() > last)  # pylint: disable=cell-var-from-loop

    def nodes_or_none(self):
        done = self.mtctl("-o", "json", "get", "nodes", check=False)
        return json.loads(done.stdout).get("nodes", []) if done.returncode == 0 else []

    def http(self, port, path="/metrics"):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as reply:
            return reply.read().decode()

    # --- Jobs.
    def state(self, name="tiny"):
        return self.job(name)["state"]

    def step(self, name="tiny"):
        return self.job(name).get("last_step", {}).get("step", 0)

    def wait_state(self, state, name="tiny", limit=60):
        return self.wait_for(f"{name} {state}", lambda: (j := self.job(name))["state"] == state and j, limit)

    def wait_step(self, step, name="tiny", limit=60):
        self.wait_for(f"{name} at step {step}", lambda: self.step(name) >= step, limit)

    def history(self, name="tiny"):
        """Every step of the job's life, as written by `mtctl metrics -o jsonl`."""
        rows = []
        for first in range(1, self.step(name) + 1, 2500):  # larger answers come thinned
            done = self.mtctl("metrics", name, "--steps", f"{first}:{first + 2499}", "-o", "jsonl", "--points", "2500")
            rows += [json.loads(line) for line in done.stdout.splitlines()]
        return rows

    def losses(self, name="tiny"):
        rows = self.history(name)
        steps = [row["step"] for row in rows]
        self.assertTrue(steps == list(range(1, len(steps) + 1)), f"every step exactly once, in order: {len(steps)} rows")
        return [(row["step"], row["loss"], row["grad_norm"]) for row in rows]

    def operations(self, name="tiny"):
        return json.loads(self.mtctl("-o", "json", "get", "operations", name).stdout).get("operations", [])

    def events(self, name="tiny"):
        return json.loads(self.mtctl("-o", "json", "get", "events", name).stdout).get("events", [])

    def run_undisturbed(self, name, *flags):
        """The same job, left alone; what it printed is what a disturbed one must print, bit for bit."""
        self.submit("--follow", "--set", f"name={name}", *flags, timeout=300)
        return self.losses(name)

    def assert_as_undisturbed(self, *flags):
        """Ends the job; the same one, left alone, has printed the same as far as this one came, bit for bit."""
        self.mtctl("kill", "tiny", "--yes", "--wait")
        printed = self.losses()
        self.submit("--set", "name=alone", *flags)
        self.wait_step(len(printed), "alone", limit=240)
        self.mtctl("kill", "alone", "--yes", "--wait")
        self.assertEqual(self.losses("alone")[:len(printed)], printed)

    def rank_processes(self):
        return sorted(p for p in alive_with(str(self.dir)) if "mt-rank" in self.command(p))

    def command(self, pid):
        try:
            with open(f"/proc/{pid}/cmdline", "rb") as f:
                return f.read().replace(b"\0", b" ").decode(errors="replace").split(" ")[0]
        except OSError:
            return ""
