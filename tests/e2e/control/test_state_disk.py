"""The state disk is full for a while under load: reads are answered, nothing acknowledged is lost, no rank is disturbed, and it
heals by itself.

Full for some seconds; `scripts/test.sh --full` (MT_LONG_TESTS=1): a minute. Needs root, which mounts a small file system; without
root it is skipped, or fails with MT_REQUIRE_ROOT=1.
"""
import errno
import json
import os
import signal
import pathlib
import subprocess
import threading
import time
import unittest

from harness import needs_root
from service_harness import ServiceTest

SECONDS = 60 if os.environ.get("MT_LONG_TESTS") else 8


@needs_root("mounts a small file system")
class StateDiskFullTest(ServiceTest):
    slots = 2

    def setUp(self):
        super().setUp()
        self.state = self.dir / "coordinator"
        self.move_to_small_disk()
        self.submit("--set", "training.train_iters=1000000", "--set", "checkpoint.every_iters=0", "--set", "parallel.data=1")
        self.wait_step(5)
        self.pids = self.rank_processes()
        self.assertEqual(len(self.pids), 1)

    def move_to_small_disk(self):
        """The state folder as the coordinator made it, on a small file system, which the steps of ten minutes (280 bytes each) do not
        fill."""
        self.kill_coordinator()
        aside = self.dir / "aside"
        self.state.rename(aside)
        self.state.mkdir(mode=0o700)
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=256m,mode=0700", "tmpfs", str(self.state)], check=True)
        self.addCleanup(subprocess.run, ["umount", "-l", str(self.state)], check=True)
        subprocess.run(["cp", "-a", f"{aside}/.", str(self.state)], check=True)
        self.start_coordinator()
        self.wait_api()
        self.wait_nodes(1)

    def fill(self):
        with open(self.state / "filler", "ab", buffering=0) as filler:
            for size in (1 << 20, 1 << 12, 1):
                try:
                    while True:
                        filler.write(b"\0" * size)
                except OSError as error:
                    self.assertEqual(error.errno, errno.ENOSPC)

    def why_no_orders(self):
        done = self.mtctl("version", "-o", "json", check=False)
        return json.loads(done.stdout).get("server", {}).get("no_orders", "") if done.returncode == 0 else ""

    def wait_refusing(self):
        """Something has to be written before it shows; the disk is filled again in case something was freed."""
        def refuses():
            self.fill()
            return self.why_no_orders()
        self.assertIn("the state disk is full", self.wait_for("a coordinator that gives no orders", refuses, 30))

    def check_reads(self):
        for command in (["get", "jobs"], ["get", "nodes"], ["describe", "tiny"], ["get", "operations", "tiny"],
                        ["get", "events", "tiny"], ["metrics", "tiny", "--steps", "1:5"], ["logs", "tiny"]):
            self.mtctl(*command, timeout=30)
        self.wait_read_only(1)
        self.assertEqual(self.http(self.http_port, "/readyz"), "ok\n")

    def heal(self):
        (self.state / "filler").unlink()
        freed = time.monotonic()
        self.wait_for("orders again", lambda: self.submit("--set", "name=after", "--set", "parallel.data=1", check=False)
                      .returncode == 0, 10)
        print(f"\nhealed {time.monotonic() - freed:.1f} s after there was space")
        self.wait_for("the agent's session", lambda: any(n["state"] == "NODE_READY" for n in self.nodes_or_none()), 30)
        self.wait_read_only(0)

    def wait_read_only(self, value):
        line = f"mt_store_read_only {value}"
        self.wait_for(line, lambda: line in self.http(self.http_port).splitlines(), 10)

    def check_training(self):
        """The rank is the same, and every step of its life is there exactly once."""
        self.assertLessEqual(set(self.pids), set(self.rank_processes()), "a rank was disturbed")
        step = self.step()
        self.wait_step(step + 5)
        self.losses()
        self.assertEqual(self.state_of_tiny(), "RUNNING")

    def state_of_tiny(self):
        return self.job("tiny")["state"]

    def submit_many(self, over, acknowledged):
        count = 0
        while not over.is_set():
            count += 1
            done = self.mtctl("-o", "json", "submit", "-f", str(self.job_file), "--set", f"name=extra-{count}", "--set",
                              "placement.slots=2", check=False)
            if done.returncode == 0:
                acknowledged.append(json.loads(done.stdout).get("job", json.loads(done.stdout))["uid"])

    def test_full_under_load_and_healed(self):
        process = self.coordinator
        over, acknowledged = threading.Event(), []
        user = threading.Thread(target=self.submit_many, args=(over, acknowledged))
        user.start()
        try:
            self.wait_for("some load", lambda: len(acknowledged) >= 3, 30)
            self.wait_refusing()
            end = time.monotonic() + SECONDS
            while time.monotonic() < end:
                self.check_reads()
            # It is tried again until the limit: here not for the harness' half a minute.
            refused = self.mtctl("--request-timeout", "8", "submit", "-f", str(self.job_file), "--set", "name=meanwhile", check=False)
            self.assertEqual(refused.returncode, 2, refused.stdout + refused.stderr)
            self.assertIn("the state disk is full", refused.stderr)
            self.assertEqual(self.rank_processes(), self.pids, "a rank was disturbed")
            self.heal()
        finally:
            over.set()
            user.join()
        self.assertIsNone(process.poll(), "the coordinator never ended")
        known = [j["uid"] for j in json.loads(self.mtctl("-o", "json", "get", "jobs").stdout)["jobs"]]
        self.assertEqual([uid for uid in acknowledged if uid not in known], [], "an acknowledged submit was lost")
        self.check_training()

    def test_killed_and_started_on_the_full_disk(self):
        self.fill()
        for how in (signal.SIGKILL, signal.SIGTERM):
            self.coordinator.send_signal(how)
            self.coordinator.wait(timeout=30)
            self.start_coordinator()
            self.wait_api()
        self.wait_refusing()
        self.check_reads_without_agent()
        self.assertEqual(self.rank_processes(), self.pids, "a rank was disturbed")
        self.heal()
        self.check_training()

    def check_reads_without_agent(self):
        for command in (["get", "jobs"], ["get", "nodes"], ["describe", "tiny"], ["get", "events", "tiny"]):
            self.mtctl(*command, timeout=30)


if __name__ == "__main__":
    unittest.main()
