"""Networks of their own: a machine is cut off and its name taken, a coordinator is cut off and its place taken. No rank ends that
nobody told to, and no epoch is given twice.

Each machine is a network namespace, each cable a pair of virtual interfaces; a cut takes one of its ends down. All processes run
under the user of the test, which must be root and may make namespaces: else the tests are skipped, or fail with MT_REQUIRE_ROOT=1.
"""
import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "e2e"))

from harness import BIN, needs_root  # noqa: E402  (found by the path above)
from service_harness import ServiceTest, make_store  # noqa: E402
import required  # noqa: E402

# Trains until it is stopped, and saves when it is told to only.
LONG = ("--set", "training.train_iters=1000000", "--set", "checkpoint.every_iters=0")
# What the workers call; whichever machine they have a route to answers there.
COORDINATOR = "10.9.9.9"
BOOT_ID = "11111111-2222-4333-8444-555555555555"
MACHINE_ID = "0123456789abcdef0123456789abcdef"
# L1: so long after its last word a node's name is its own; a little less, as a lease goes by another clock than the word's time.
HEARD_SECONDS = 10 - 0.5


@needs_root("a network namespace is made")
class NetworkTest(ServiceTest):
    """A coordinator on the machine `first`, a worker on the machine `a`, and what a test adds."""

    autostart = False
    seat = "first"  # the machine on which mtctl runs

    def setUp(self):
        self.tag = f"mt{os.getpid()}-"
        self.machines = []
        self.addCleanup(self.remove_machines)
        self.add_machine("first")
        super().setUp()
        self.add_machine("a")
        self.wire("first", "a", 1)
        self.start_coordinator()
        self.start_worker("node-a", "a")
        self.wait_nodes(1)

    # --- Machines and cables.
    def ip(self, *args):
        done = subprocess.run(["ip", *args], capture_output=True, text=True, timeout=30, check=False)
        self.assertEqual(done.returncode, 0, f"ip {' '.join(args)}: {done.stderr}")

    def add_machine(self, name):
        made = subprocess.run(["sh", "-c", f"ip netns add {self.tag}{name} && ip -n {self.tag}{name} link add probe type veth"],
                              capture_output=True, text=True, timeout=30, check=False)
        self.machines.append(name)
        if made.returncode != 0:
            required.missing(f"no network namespace can be made here: {made.stderr.strip()}")
        self.ip("-n", self.tag + name, "link", "set", "lo", "up")

    def remove_machines(self):
        for name in self.machines:
            subprocess.run(["sh", "-c", f"ip netns delete {self.tag}{name}"], check=False, timeout=30, stderr=subprocess.DEVNULL)

    def wire(self, coordinator, worker, number):
        """A cable between the two, and a route to the coordinator over it."""
        top, low = self.tag + coordinator, self.tag + worker
        self.ip("link", "add", f"c{number}", "netns", top, "type", "veth", "peer", "name", f"w{number}", "netns", low)
        for space, end, address in ((top, f"c{number}", f"10.0.{number}.1/24"), (low, f"w{number}", f"10.0.{number}.2/24")):
            self.ip("-n", space, "address", "add", address, "dev", end)
            self.ip("-n", space, "link", "set", end, "up")
        self.ip("-n", top, "address", "replace", f"{COORDINATOR}/32", "dev", "lo")
        self.answer_all(coordinator, number)
        self.route(worker, number)

    def route(self, worker, number):
        self.ip("-n", self.tag + worker, "route", "replace", COORDINATOR, "via", f"10.0.{number}.1")

    def cut(self, coordinator, number):
        self.ip("-n", self.tag + coordinator, "link", "set", f"c{number}", "down")

    def mend(self, coordinator, number):
        self.ip("-n", self.tag + coordinator, "link", "set", f"c{number}", "up")
        self.answer_all(coordinator, number)

    def answer_all(self, coordinator, number):
        """Connections of the worker's other cable are refused at once, not after the ping's limit (L2)."""
        self.ip("-n", self.tag + coordinator, "route", "replace", "default", "via", f"10.0.{number}.2")

    def on(self, machine, *command):
        return ["ip", "netns", "exec", self.tag + machine, *command]

    def start(self, log_name, *command):
        with open(self.dir / f"{log_name}.log", "ab") as log:
            return subprocess.Popen(command, stderr=log, stdout=log, env=self.env, stdin=subprocess.DEVNULL)

    # --- Processes, each on its machine.
    def program(self, name):
        return self.on(self.seat, *super().program(name))

    def start_coordinator(self, *flags, machine="first", state="coordinator"):
        make_store(self.dir / state)
        process = self.start(state, *self.on(machine, str(BIN / "mt-coordinator"), "--listen", f"0.0.0.0:{self.port}", "--insecure",
                                             "--state", str(self.dir / state), "--http-listen", "127.0.0.1:0", *flags))
        if machine == "first":
            self.coordinator = process
        return process

    def start_worker(self, label, machine, *before):
        """A worker of the name node-a; `before`: a command that ends in running it."""
        self.worker_args[label] = ()
        self.workers[label] = self.start(
            label, *self.on(machine, *before, str(BIN / "mt-worker"), "--coordinator", f"{COORDINATOR}:{self.port}",
                            "--node", "node-a", "--cpu-slots", "2", "--gpus", "none", "--state", str(self.dir / label),
                            "--data-root", str(self.dir / "data"), "--checkpoint-root", str(self.dir / "ckpt"),
                            "--log-root", str(self.dir / f"{label}-logs"), "--http-listen", "none", "--rank-binary", str(self.rank)))

    def log(self, label):
        return (self.dir / f"{label}.log").read_text()

    def registrations(self, label):
        return self.log(label).count("registered with the coordinator")

    def server(self):
        return json.loads(self.mtctl("-o", "json", "version").stdout)["server"]

    def wait_refused(self, reason, pids):
        """The coordinator refuses the worker for this reason; not one rank ends meanwhile."""
        def said():
            self.assertEqual(self.rank_processes(), pids, "a rank was ended by a coordinator that does not know it")
            done = self.mtctl("-o", "json", "get", "events", check=False)
            events = json.loads(done.stdout).get("events", []) if done.returncode == 0 and done.stdout.strip() else []
            return any(e["type"] == "WorkerRefused" and reason in e.get("message", "") for e in events)
        self.wait_for(f"an event WorkerRefused ({reason})", said)

    def train_one(self):
        self.submit(*LONG, "--set", "parallel.data=1")
        self.wait_step(3)
        self.epoch = self.job()["epoch"]
        return self.rank_processes()

    def assert_undisturbed(self, pids):
        self.assertEqual(self.rank_processes(), pids, "a rank was ended, or another one started")
        job = self.job()
        self.assertEqual((job["state"], job["epoch"]), ("RUNNING", self.epoch), job.get("message"))

    def assert_trains_on(self, pids):
        self.wait_step(self.step() + 3)
        self.assert_undisturbed(pids)
        logs = "".join(map(self.log, self.workers))
        assigned = collections.Counter(re.findall(r"ranks assigned.*?job=(\S+) .*?epoch=(\S+)", logs))
        self.assertEqual(list(assigned.values()), [1], f"each epoch once: {assigned}")


class CutMachineTest(NetworkTest):
    def start_twin(self):
        """A clone of the first machine, from before it had ranks: another boot, another machine id, the node's own secret."""
        (self.dir / "boot").write_text(BOOT_ID + "\n")
        (self.dir / "machine").write_text(MACHINE_ID + "\n")
        script = (f"mount --bind {self.dir}/boot /proc/sys/kernel/random/boot_id && "
                  f'{{ [ ! -e /etc/machine-id ] || mount --bind {self.dir}/machine /etc/machine-id; }} && exec "$@"')
        self.start_worker("twin", "b", "unshare", "--mount", "sh", "-c", script, "sh")

    def test_a_twin_takes_the_name_of_a_machine_that_is_cut_off(self):
        self.add_machine("b")
        self.wire("first", "b", 2)
        # Under its name: a file beside it is synced before it takes its place.
        self.wait_for("the secret", (self.dir / "node-a/identity/secret.bin").exists)
        shutil.copytree(self.dir / "node-a", self.dir / "twin", ignore=shutil.ignore_patterns("*.sock*"))
        pids = self.train_one()
        # It starts before the cut: behind it the name may be free before a loaded machine has started it.
        self.start_twin()
        self.wait_for("the twin's refusal", lambda: "belongs to a worker that was heard" in self.log("twin"))
        self.assertEqual(self.registrations("twin"), 0)
        # The holder's last word comes no earlier.
        heard = int(self.nodes()[0]["last_heartbeat_us"]) / 1e6
        self.cut("first", 1)
        self.wait_for("the twin has the name", lambda: self.registrations("twin"))
        self.assertGreater(time.time() - heard, HEARD_SECONDS)
        # It has no ranks; those of the first machine are left behind there, not gone.
        time.sleep(3)
        self.assert_undisturbed(pids)
        # The first machine is back while the twin has its name, which disturbs neither.
        known = self.registrations("node-a")
        refused = self.log("node-a").count("belongs to a worker")
        self.mend("first", 1)
        self.wait_for("the first one's refusal", lambda: self.log("node-a").count("belongs to a worker") > refused)
        self.assertEqual(self.registrations("node-a"), known)
        self.assert_undisturbed(pids)
        self.stop_worker("twin")
        self.wait_for("the first one has its name again", lambda: self.registrations("node-a") > known)
        self.assert_trains_on(pids)


class CutCoordinatorTest(NetworkTest):
    other = None

    def stop_all(self):
        super().stop_all()
        if self.other is not None:
            self.other.kill()
            self.other.wait()

    def test_a_copy_takes_the_place_of_a_coordinator_that_is_cut_off(self):
        self.kill_coordinator()
        shutil.copytree(self.dir / "coordinator", self.dir / "copy")
        self.start_coordinator()
        self.wait_for("the worker's second session", lambda: self.registrations("node-a") == 2)
        pids = self.train_one()
        self.add_machine("second")
        self.other = self.start_coordinator(machine="second", state="copy")
        # The worker's network has the second one in it from now on, and the first one not.
        self.cut("first", 1)
        self.wire("second", "a", 2)
        self.seat = "second"
        self.wait_refused("TERM_SUPERSEDED", pids)
        self.assertIn("gives no orders", self.mtctl("version").stdout)
        self.assertNotEqual(self.submit(*LONG, "--set", "name=other", check=False).returncode, 0)
        self.assertEqual(self.rank_processes(), pids)
        # The first one, alone, ends nothing either.
        self.seat = "first"
        self.assert_undisturbed(pids)
        self.cut("second", 2)
        self.mend("first", 1)
        self.route("a", 1)
        self.wait_for("the worker is back", lambda: self.registrations("node-a") == 3)
        self.assertFalse(self.server().get("no_orders"))
        self.assert_trains_on(pids)


if __name__ == "__main__":
    unittest.main()
