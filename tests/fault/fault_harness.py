"""What the fault tests share: a cluster whose coordinator's state folder is put away, copied and swapped, and ranks that must not
notice. The processes and jobs are those of tests/e2e (service_harness.py)."""
import json
import pathlib
import re
import shutil
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))

from service_harness import ServiceTest  # noqa: E402  (found by the path above)

# Trains until it is stopped, and saves when it is told to only.
LONG = ("--set", "training.train_iters=1000000", "--set", "checkpoint.every_iters=0")


class StoreFaultTest(ServiceTest):
    """Folders of the coordinator's state have names; "coordinator" is the one that the next start takes."""

    def store(self, name):
        return self.dir / name

    def put_away(self, name):
        """The coordinator, which does not run, finds no folder at its next start."""
        self.store("coordinator").rename(self.store(name))

    def put_in(self, name):
        self.store(name).rename(self.store("coordinator"))

    def swap_in(self, name, away):
        self.kill_coordinator()
        self.put_away(away)
        self.put_in(name)
        self.start_coordinator()
        self.wait_api()

    def copy_stopped(self, name):
        """A copy of the state folder as docs/operations.md makes one: while the coordinator is stopped."""
        self.kill_coordinator()
        shutil.copytree(self.store("coordinator"), self.store(name), symlinks=True)
        self.start_coordinator()
        self.wait_api()
        self.wait_nodes(len(self.workers))

    def wait_obeyed(self, node):
        """The worker has this start of the coordinator on its disk. A coordinator hears a worker before the worker has its answer, and
        a worker that is killed in between has obeyed nobody."""
        uid = self.server()["coordinator_uid"].encode()
        record = self.dir / node / "cluster.bin"
        self.wait_for(f"{node} obeys this start of the coordinator", lambda: record.exists() and uid in record.read_bytes())

    # --- What the ranks do, seen without the coordinator.
    def train(self, name="tiny", *flags):
        self.submit(*LONG, "--set", f"name={name}", *flags)
        self.wait_step(3, name)

    def rank_steps(self):
        """The newest step of each rank that the workers know, by its labels. Jobs that have ended are shown for a while, too."""
        text = "".join(self.http(self.worker_args[node][2]) for node, process in self.workers.items() if process.poll() is None)
        return {m[1]: float(m[2]) for m in re.finditer(r"^mt_step\{([^}]*)\} (\S+)$", text, re.M)}

    def assert_ranks_go_on(self, pids):
        """These ranks, no other ones, train on."""
        self.assertEqual(self.rank_processes(), pids, "the ranks that ran before still run, and no others")
        before = self.wait_for("the workers show every rank", lambda: len(steps := self.rank_steps()) == len(pids) and steps)
        self.wait_for("a step of every rank",
                      lambda: all(step > before.get(rank, 0) for rank, step in self.rank_steps().items()))
        self.assertEqual(self.rank_processes(), pids)

    def wait_refused(self, reason, pids, limit=60):
        """The coordinator refuses the worker for this reason; not one rank ends meanwhile."""
        def said():
            self.assertEqual(self.rank_processes(), pids, "a rank was ended by a coordinator that does not know it")
            return any(e["type"] == "WorkerRefused" and reason in e.get("message", "") for e in self.all_events())
        self.wait_for(f"an event WorkerRefused ({reason})", said, limit)

    def all_events(self):
        done = self.mtctl("-o", "json", "get", "events", check=False)
        return json.loads(done.stdout).get("events", []) if done.returncode == 0 and done.stdout.strip() else []

    def orphans(self):
        return json.loads(self.mtctl("-o", "json", "get", "orphans").stdout).get("orphans", [])

    def server(self):
        return json.loads(self.mtctl("-o", "json", "version").stdout)["server"]
