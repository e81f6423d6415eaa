"""Runs the real programs: a coordinator and a worker on loopback in a folder of their own, a tiny data set, mtctl.

Every test gets its own folder and cluster, which is stopped after it; last of all, and whatever failed before, every process of the
folder is ended, and one that was left fails the test.
"""
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))

import processes  # noqa: E402  (found by the path above)
import required  # noqa: E402

BIN = pathlib.Path(os.environ["MT_BIN"])

# The niceness of ranks. Most jobs here train without end while a test looks at something else: their ranks take what of the processors
# nobody else wants, and a quarter of a busy one.
BEHIND = 5

# mtctl's exit code and words where it cannot connect.
UNREACHED, NOBODY = 2, "mtctl: no coordinator at "
# What it says on stderr where it is not connected within two seconds.
WAITING = "mtctl: waiting for the coordinator at "

# Learns within seconds; every field a test changes comes by --set. A fault ends it: RESTARTS has another epoch follow.
TINY_JOB = """
name: tiny
model: {layers: 2, hidden_size: 32, heads: 2, seq_length: 32}
data: {path: [text_document], split: "8,1,1", tokenizer: {type: byte}}
parallel: {data: 2}
training: {train_iters: 40, micro_batch_size: 2, global_batch_size: 8}
optimizer: {lr: 1.0e-3, warmup: 5}
placement: {device: cpu}
resilience: {max_restarts: {user: 0, hang: 0, storage: 0, infra_per_hour: 0, no_progress: 0}}
"""
RESTARTS = ("--set", "resilience.max_restarts.infra_per_hour=10", "--set", "resilience.max_restarts.no_progress=3")


def without_waiting(text):
    """What mtctl has said besides that it waits for the connection, which is the machine's load."""
    return re.sub(re.escape(WAITING) + ".*\n", "", text)


def needs_root(why):
    """Skips a test class without root; with MT_REQUIRE_ROOT=1, as in CI, it runs and fails there instead."""
    return unittest.skipUnless(os.geteuid() == 0 or required.STRICT, f"{why}, which needs root")


class ClusterTest(unittest.TestCase):
    slots = 2
    gpus = "none"  # the same on every machine

    def setUp(self):
        # The name of the folder tells whose a process is that was left.
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix=f"mte2e-{type(self).__name__}-"))
        self.addCleanup(self.sweep)  # the first cleanup runs last, and none that fails keeps it from running
        self.env = dict(os.environ, XDG_STATE_HOME=str(self.dir / "s"), HOME=str(self.dir))
        self.env.pop("MTCTL_COORDINATOR", None)
        # A loaded machine is no fault of the coordinator's; tests that look at the limit itself give their own.
        self.env["MTCTL_REQUEST_TIMEOUT"] = "30"
        (self.dir / "data").mkdir()
        (self.dir / "ckpt").mkdir()  # no agent makes it
        self.job_file = self.dir / "job.yaml"
        self.job_file.write_text(TINY_JOB)
        self.make_data()

    def tearDown(self):
        if (self.dir / "s/megatrain/dev").exists():
            self.mtctl("dev", "down", check=False)

    def sweep(self):
        self.assertEqual(processes.sweep(self.dir), [], "processes left running, now killed")

    def make_data(self):
        """Words in a random order: something to learn."""
        rng = random.Random(1)
        words = "the cat sat on a mat and saw one small dog run by".split()
        text = "\n%\n".join(" ".join(rng.choice(words) for _ in range(rng.randint(5, 40))) for _ in range(400))
        (self.dir / "text").write_text(text)
        self.mtctl("data", "prepare", "--input", str(self.dir / "text"), "--separator", "%", "--append-eod",
                   "--output", str(self.dir / "data" / "text_document"))

    def up(self, *flags):
        self.mtctl("dev", "up", "--cpu-slots", str(self.slots), "--gpus", self.gpus, "--data-root", str(self.dir / "data"),
                   "--checkpoint-root", str(self.dir / "ckpt"), *flags)

    def program(self, name):
        """The words that run it."""
        return [str(BIN / name)]

    def mtctl(self, *args, check=True, timeout=120):
        """Runs mtctl; returns the finished process with its exit code, stdout and stderr. Where it has to succeed, it is run again
        while it found no coordinator, as it does within its ten seconds on a loaded machine: then it has asked for nothing yet."""
        for _ in range(10 if check else 1):
            done = subprocess.run([*self.program("mtctl"), *args], env=self.env, capture_output=True, text=True,
                                  timeout=timeout, stdin=subprocess.DEVNULL, cwd=self.dir)
            if done.returncode != UNREACHED or NOBODY not in done.stderr:
                break
        done.stderr = without_waiting(done.stderr)
        if check:
            self.assertEqual(done.returncode, 0, f"mtctl {' '.join(args)}\n{done.stdout}\n{done.stderr}")
        return done

    def start_mtctl(self, *args):
        """Runs mtctl beside the test. A test that fails ends it here: the sweep finds it only where its words name the folder."""
        process = subprocess.Popen([str(BIN / "mtctl"), *args], env=self.env, stdout=subprocess.PIPE,
                                   stderr=subprocess.PIPE, text=True, stdin=subprocess.DEVNULL, cwd=self.dir)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def submit(self, *flags, check=True, timeout=120):
        return self.mtctl("submit", "-f", str(self.job_file), *flags, check=check, timeout=timeout)

    def job(self, name="tiny"):
        return json.loads(self.mtctl("-o", "json", "describe", name).stdout)

    def nodes(self):
        return json.loads(self.mtctl("-o", "json", "get", "nodes").stdout)["nodes"]

    def wait_for(self, what, condition, limit=60):
        """Polls until condition() is true; returns its value. A look counts as two seconds at most: a machine that stands still as a
        whole is no fault of what is waited for. Most looks start a program: the longer it takes, the rarer they are."""
        left = limit
        while left > 0:
            began = time.monotonic()
            self.put_dev_ranks_behind()
            value = condition()
            if value:
                return value
            time.sleep(min(0.1 + (limit - left) / 50, 0.5))
            left -= min(2, time.monotonic() - began)
        self.fail(f"{what}: not within {limit} s")

    def put_dev_ranks_behind(self):
        """Those of a cluster of mtctl dev, whose worker takes no other mt-rank than its own. A shim
        and its rank are a session, which the kernel schedules as one where it has autogroups; elsewhere they stay as they are."""
        try:
            worker = self.dev_pids()[1]
            for shim in map(int, pathlib.Path(f"/proc/{worker}/task/{worker}/children").read_text().split()):
                if os.getsid(shim) == shim:  # before, it is of the worker's own session
                    pathlib.Path(f"/proc/{shim}/autogroup").write_text(str(BEHIND))
        except (OSError, LookupError, TypeError, ValueError):
            pass  # no such cluster, or it comes and goes just now

    def dev_pids(self):
        state = json.loads((self.dir / "s/megatrain/dev/dev.json").read_text())
        return state["coordinator"]["pid"], state["worker"]["pid"]

    def endpoint(self):
        return (self.dir / "s/megatrain/dev/endpoint").read_text().strip()

    def folder(self, name="tiny"):
        """Where a job keeps its checkpoints that names no directory."""
        return self.dir / "ckpt" / "default" / name

    def checkpoints(self, name="tiny"):
        folder = self.folder(name)
        return sorted(p.name for p in folder.iterdir() if not p.name.startswith(("FENCE", "run.json"))) if folder.exists() else []

    def assert_one_message(self, done, code, *words):
        """A clear failure: this exit code, on stderr a short message with these words, no crash."""
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        for word in words:
            self.assertRegex(done.stderr, re.compile(word, re.IGNORECASE))
        self.assertLess(len(done.stderr.splitlines()), 12, done.stderr)
