"""One trial: a coordinator and two workers in a folder of their own, with a job in each of the states of a job's life.

The ranks of most jobs are stopped (SIGSTOP), which holds a job in its state and costs no processor time, so that many trials run
side by side. `check_undisturbed` says what no trial may do: kill a rank, lose a job's ranks, or give an epoch twice.
"""
import collections
import contextlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))

from harness import BEHIND, BIN, NOBODY, TINY_JOB, UNREACHED  # noqa: E402  (found by the path above)
from processes import kill_all  # noqa: E402
from service_harness import free_port  # noqa: E402

NODES = ["node-a", "node-b"]
SLOTS = 4

# Becomes mt-rank, behind all else as in tests/e2e/service_harness.py; of ranks that begin while the file `gate` is there, one passes and
# the others wait.
RANK = """#!/bin/sh
[ "$1" != --check-blas ] || exec '{rank}' "$@"
while [ -e '{folder}/gate' ] && ! mkdir '{folder}/passed' 2> /dev/null; do sleep 0.05; done
echo {behind} 2> /dev/null > /proc/self/autogroup
exec nice -n {behind} '{rank}' "$@"
"""


class TrialError(AssertionError):
    pass


def processes():
    """pid -> command line, as a list of words, of all living processes."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().decode(errors="replace").split("\0")
            state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if words[0] and state not in "ZX":
            found[int(entry.name)] = words
    return found


def send(pids, signum):
    for pid in pids:
        try:
            os.kill(pid, signum)
        except ProcessLookupError:
            pass


class Trial:
    def __init__(self, folder, data_root):
        self.dir = pathlib.Path(folder)
        self.data_root = data_root
        self.port = free_port()
        self.coordinators = {}  # name -> process; the name is that of its state folder
        self.workers = {}
        self.http_ports = {}  # of the newest start of each, by the names above
        self.last_start_us = 0  # of a coordinator or a worker
        self.uids = {}  # job name -> uid
        self.ranks = {}  # job name -> pids, once it is where it should be
        self.dir.mkdir(parents=True)
        (self.dir / "ckpt").mkdir()
        (self.dir / "job.yaml").write_text(TINY_JOB)
        (self.dir / "rank").write_text(RANK.format(folder=self.dir, rank=BIN / "mt-rank", behind=BEHIND))
        (self.dir / "rank").chmod(0o755)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for process in [*self.coordinators.values(), *self.workers.values()]:
            if process.poll() is None:
                process.send_signal(signal.SIGCONT)
                process.kill()
                process.wait()
        kill_all(self.dir)  # of ranks that are stopped and of their shims, too, before the test looks for what it has left
        if error[0] is None and not os.environ.get("MT_KEEP_TRIALS"):
            shutil.rmtree(self.dir, ignore_errors=True)

    # --- Processes.
    def init_store(self, name):
        subprocess.run([str(BIN / "mt-coordinator"), "init", "--state", str(self.dir / name)], check=True, timeout=30,
                       capture_output=True)

    def start_coordinator(self, name="coordinator", port=None, flags=()):
        self.last_start_us = time.time_ns() // 1000
        self.http_ports[name] = free_port()
        log = open(self.dir / f"{name}.log", "ab")
        self.coordinators[name] = subprocess.Popen(
            [str(BIN / "mt-coordinator"), "--listen", f"127.0.0.1:{port or self.port}", "--state", str(self.dir / name),
             "--http-listen", f"127.0.0.1:{self.http_ports[name]}", *flags], stderr=log, stdout=log, stdin=subprocess.DEVNULL)
        log.close()

    def stop_coordinator(self, name="coordinator"):
        self.coordinators[name].kill()
        self.coordinators[name].wait()

    def start_worker(self, node, port=None):
        self.last_start_us = time.time_ns() // 1000
        self.http_ports[node] = free_port()
        log = open(self.dir / f"{node}.log", "ab")
        self.workers[node] = subprocess.Popen(
            [str(BIN / "mt-worker"), "--coordinator", f"127.0.0.1:{port or self.port}", "--node", node, "--cpu-slots", str(SLOTS),
             "--gpus", "none", "--state", str(self.dir / node), "--data-root", str(self.data_root),
             "--checkpoint-root", str(self.dir / "ckpt"), "--log-root", str(self.dir / "logs"),
             "--http-listen", f"127.0.0.1:{self.http_ports[node]}", "--rank-binary", str(self.dir / "rank")],
            stderr=log, stdout=log, stdin=subprocess.DEVNULL)
        log.close()

    def stop_worker(self, node):
        self.workers[node].kill()
        self.workers[node].wait()

    def mtctl(self, *args, check=True, port=None):
        env = dict(os.environ, HOME=str(self.dir), XDG_STATE_HOME=str(self.dir / "s"),
                   MTCTL_COORDINATOR=f"127.0.0.1:{port or self.port}", MTCTL_REQUEST_TIMEOUT="30")
        for _ in range(10 if check else 1):  # as in tests/e2e/harness.py
            done = subprocess.run([str(BIN / "mtctl"), *args], env=env, capture_output=True, text=True, timeout=120,
                                  stdin=subprocess.DEVNULL, cwd=self.dir)
            if done.returncode != UNREACHED or NOBODY not in done.stderr:
                break
        if check and done.returncode != 0:
            raise TrialError(f"mtctl {' '.join(args)}: {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    def http(self, name, path="/metrics"):
        """What a coordinator or a worker answers, refusals too."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http_ports[name]}{path}", timeout=10) as reply:
                return reply.read().decode()
        except urllib.error.HTTPError as refused:
            return refused.read().decode()

    def server(self):
        return json.loads(self.mtctl("-o", "json", "version").stdout)["server"]

    def events(self):
        return (self.json("get", "events") or {}).get("events", [])

    def wait_refused(self, reason):
        self.wait_for(f"an event WorkerRefused ({reason})", lambda: any(
            e["type"] == "WorkerRefused" and reason in e.get("message", "") for e in self.events()))

    def json(self, *args, port=None):
        done = self.mtctl("-o", "json", *args, check=False, port=port)
        return json.loads(done.stdout) if done.returncode == 0 and done.stdout.strip() else None

    def wait_for(self, what, condition, limit=60):
        began = time.monotonic()
        while time.monotonic() < began + limit:
            value = condition()
            if value:
                return value
            time.sleep(min(0.1 + (time.monotonic() - began) / 50, 0.5))  # as in tests/e2e/harness.py
        raise TrialError(f"{self.dir.name}: {what}: not within {limit} s")

    def wait_ready(self, nodes=len(NODES), port=None, limit=60):
        # Not by the store alone, from which a coordinator that starts knows its nodes.
        def ready():
            found = [n for n in (self.json("get", "nodes", port=port) or {}).get("nodes", []) if n["state"] == "NODE_READY"]
            return len(found) == nodes and all(int(n["last_heartbeat_us"]) >= self.last_start_us for n in found)
        self.wait_for(f"{nodes} ready nodes", ready, limit)

    def wait_obeyed(self, port=None):
        """All workers have this start of the coordinator on their disk. A coordinator hears a worker before the worker has its answer,
        and one that is killed in between has obeyed nobody."""
        uid = self.json("version", port=port)["server"]["coordinator_uid"].encode()
        records = [self.dir / node / "cluster.bin" for node in NODES]
        self.wait_for("the nodes obey this start of the coordinator", lambda: all(uid in r.read_bytes() for r in records))

    # --- Jobs.
    def job(self, name, port=None):
        return self.json("describe", name, port=port)

    def wait_job(self, name, port=None):
        """As soon as there is an answer: a coordinator on a loaded machine may have none within mtctl's limits."""
        return self.wait_for(f"an answer on {name}", lambda: self.job(name, port))

    def wait_state(self, name, state, limit=60):
        seen = {}

        def reached():
            seen.update(self.job(name) or {"state": "no answer"})
            return seen["state"] == state
        try:
            self.wait_for(f"{name} {state}", reached, limit)
        except TrialError as late:
            raise TrialError(f"{late}; it is {seen['state']}: {seen.get('message')}") from late

    def submit(self, name, *flags):
        done = self.mtctl("-o", "json", "submit", "-f", str(self.dir / "job.yaml"), "--set", f"name={name}",
                          "--set", "training.train_iters=1000000", "--set", "checkpoint.every_iters=0",
                          "--set", "parallel.data=1", "--set", "checkpoint.keep_last=1000", *flags)
        reply = json.loads(done.stdout)
        self.uids[name] = reply.get("job", reply)["uid"]

    def rank_pids(self, name):
        uid = self.uids[name]
        return sorted(p for p, words in processes().items() if words[0].endswith("mt-rank") and uid in words)

    def step(self, name):
        return int((self.job(name) or {}).get("last_step", {}).get("step", 0))

    def wait_trains(self, name):
        self.wait_for(f"{name} trains", lambda: self.step(name) >= 3)

    def wait_step_beyond(self, name):
        before = self.step(name)
        self.wait_for(f"{name} trains beyond step {before}", lambda: self.step(name) > before)

    def operations(self, name):
        return (self.json("get", "operations", name) or {}).get("operations", [])

    def submit_and_stop_at_start(self, name):
        """A job of two ranks that wait for each other. Both have their assignment, so that no limit of theirs is over later."""
        (self.dir / "gate").touch()
        # Stopped ranks must not run out of the time in which they meet.
        self.submit(name, "--set", "parallel.data=2", "--set", "resilience.timeouts.comm_init=1h")
        for count in (1, 2):
            self.wait_for(f"rank {count} of {name} has called its agent", lambda: len(self.rank_pids(name)) == count and sum(
                r.get("state") in ("CONNECTED", "COMM_INIT") for r in (self.job(name) or {}).get("ranks", [])) == count)
            self.ranks[name] = self.rank_pids(name)
            send(self.ranks[name], signal.SIGSTOP)
            (self.dir / "gate").unlink(missing_ok=True)

    def start_all(self):
        """A job in each state, its ranks stopped where that holds it there."""
        self.init_store("coordinator")
        self.start_coordinator()
        for node in NODES:
            self.start_worker(node)
        self.wait_ready()
        for name in ["running", "held", "releasing", "saving"]:
            self.submit(name)
            self.wait_trains(name)
            if name == "held":
                self.mtctl("pause", name, "--hold", "--wait")
            self.ranks[name] = self.rank_pids(name)
            send(self.ranks[name], signal.SIGSTOP)
        self.mtctl("checkpoint", "saving")
        self.mtctl("pause", "releasing", "--release")
        self.submit_and_stop_at_start("starting")
        self.submit("queued", "--set", "parallel.data=8", "--set", "training.global_batch_size=16")
        self.ranks["queued"] = []
        for name, state in [("queued", "QUEUED"), ("starting", "STARTING"), ("running", "RUNNING"), ("held", "PAUSED_HELD"),
                            ("releasing", "RELEASING"), ("saving", "RUNNING")]:
            self.wait_state(name, state)

    @contextlib.contextmanager
    def going_on(self, name):
        """The job's stopped ranks go on meanwhile; afterwards they stop again, as those of several jobs would fill the processor."""
        send(self.ranks[name], signal.SIGCONT)
        yield
        send(self.ranks[name], signal.SIGSTOP)

    def shown_step(self, name):
        """The step of a job of one rank, as its worker shows it, whatever coordinator there is."""
        text = "".join(self.http(node) for node in NODES)
        return max((float(step) for step in re.findall(rf'(?m)^mt_step\{{[^}}]*job="{name}"[^}}]*\}} (\S+)$', text)), default=-1)

    def check_trains_on(self, name):
        with self.going_on(name):
            before = self.shown_step(name)
            self.wait_for(f"{name} trains on beside this coordinator", lambda: self.shown_step(name) > max(before, 0))

    # --- What no trial may do.
    def check_undisturbed(self):
        for name, pids in self.ranks.items():
            left = set(self.rank_pids(name))
            if not set(pids) <= left:
                raise TrialError(f"{self.dir.name}: {name}: ranks {pids} were killed (left: {sorted(left)})")

    def check_epochs(self):
        """Every agent started each epoch of a job at most once, and no epoch was begun by two coordinators."""
        starts = collections.Counter()
        for node in NODES:
            text = (self.dir / f"{node}.log").read_text(errors="replace")
            for line in text.splitlines():
                if "ranks assigned" in line:
                    uid = re.search(r"job=(\S+)", line).group(1)
                    starts[node, uid, re.search(r"epoch=(\S+)", line).group(1)] += 1
        twice = [key for key, count in starts.items() if count > 1]
        if twice:
            raise TrialError(f"{self.dir.name}: epochs that were given twice: {twice}")

    def check_no_phantoms(self, port=None):
        """Every job that a coordinator shows with ranks has them."""
        for name in self.uids:
            job = self.wait_job(name, port)
            if job["state"] in ("ADMITTED", "STARTING", "RUNNING", "PAUSING", "PAUSED_HELD", "RELEASING", "STOPPING") \
                    and not self.rank_pids(name):
                raise TrialError(f"{self.dir.name}: {name} is {job['state']} without a rank")

    def check_all_go_on(self):
        """After the trial: what was under way ends as it would have."""
        with self.going_on("saving"):
            self.wait_for("the save of saving", lambda: (found := self.operations("saving")) and all(
                o.get("done") and not o.get("error") for o in found))
        send(self.ranks["releasing"], signal.SIGCONT)
        self.wait_state("releasing", "PAUSED_RELEASED")
        for name in ["starting", "running"]:
            with self.going_on(name):
                self.wait_state(name, "RUNNING")
                self.wait_step_beyond(name)
        with self.going_on("held"):
            self.wait_state("held", "PAUSED_HELD")
            self.mtctl("resume", "held", "--wait")
        self.ranks.pop("releasing")
        self.check_undisturbed()
        self.check_no_phantoms()
