"""A coordinator that is not the newest of its cluster gives no orders: another cluster's store, a new one, an older copy, two
copies at once. No rank ends in any of them, and no epoch is given twice."""
import subprocess
import unittest
import urllib.error

from fault_harness import LONG, StoreFaultTest

from harness import BIN
from service_harness import free_port


class WrongStoreTest(StoreFaultTest):
    def test_a_new_store_kills_no_rank(self):
        self.train()
        pids = self.rank_processes()
        self.kill_coordinator()
        self.put_away("right")
        self.start_coordinator()
        self.wait_api()
        self.wait_refused("WRONG_CLUSTER", pids)
        self.assert_ranks_go_on(pids)
        self.wait_for("the worker is not ready, and says why", lambda: "WRONG_CLUSTER" in self.readyz())
        self.swap_in("right", away="new")
        self.wait_nodes(1)
        self.wait_step(self.step() + 1)
        self.assertEqual(self.state(), "RUNNING")
        self.assert_ranks_go_on(pids)

    def test_a_store_of_another_cluster_kills_no_rank_and_places_nothing(self):
        self.stop_worker("node-a")
        self.submit(*LONG, "--set", "name=other")
        self.kill_coordinator()
        self.put_away("other")
        self.start_coordinator()
        self.wait_api()
        # Another state folder: this worker has never met the cluster of before.
        (self.dir / "node-a").rename(self.dir / "node-a-before")
        self.start_worker("node-a", 2)
        self.wait_nodes(1)
        self.train()
        pids = self.rank_processes()
        self.swap_in("other", away="right")
        self.wait_refused("WRONG_CLUSTER", pids)
        self.assertEqual(self.state("other"), "QUEUED")
        self.assert_ranks_go_on(pids)
        self.swap_in("right", away="other")
        self.wait_nodes(1)
        self.wait_step(self.step() + 1)
        self.assertEqual(self.state(), "RUNNING")
        self.assert_ranks_go_on(pids)

    def readyz(self):
        try:
            return self.http(self.worker_args["node-a"][2], "/readyz")
        except urllib.error.HTTPError as refused:
            return refused.read().decode()


class OlderCopyTest(StoreFaultTest):
    """The restore of docs/operations.md: the folder of a backup is put back, and what happened since is not in it."""

    autostart = False

    def setUp(self):
        super().setUp()
        self.start_coordinator()
        self.start_worker("node-a", 4)
        self.wait_nodes(1)

    def backup_then_go_on(self):
        """The backup has tiny at its first epoch and `waiting` in the queue; since then both were placed."""
        self.train("tiny")
        self.train("filler")
        self.submit(*LONG, "--set", "name=waiting")
        self.copy_stopped("backup")
        self.start_worker("node-b", 3)
        self.wait_step(3, "waiting")
        self.mtctl("pause", "tiny", "--release", "--wait")
        self.mtctl("resume", "tiny", "--wait")
        self.wait_step(self.step() + 3)
        return self.rank_processes(), {name: self.job(name)["epoch"] for name in ("tiny", "waiting")}

    def test_an_older_copy_gives_no_orders(self):
        pids, _ = self.backup_then_go_on()
        self.swap_in("backup", away="newest")
        self.wait_refused("TERM_SUPERSEDED", pids)
        self.assert_ranks_go_on(pids)
        # It reads and changes nothing, and says so.
        self.assertEqual(self.state("waiting"), "QUEUED")
        self.assertIn("admin restore", self.server()["no_orders"])
        self.assertIn("gives no orders", self.mtctl("get", "nodes").stderr)
        self.assertIn("gives no orders", self.mtctl("version").stdout)
        refused = self.mtctl("kill", "waiting", "--yes", check=False)
        self.assertEqual(refused.returncode, 3, refused.stderr)
        self.assertIn("gives no orders", refused.stderr)
        self.assertIn("mt_superseded 1", self.http(self.http_port))
        # Nor does its next start, whose term may be higher than that of the one that it is a copy of.
        for _ in range(2):
            self.kill_coordinator()
            self.start_coordinator()
            self.wait_api()
            self.assertIn("admin restore", self.server()["no_orders"])
        self.assert_ranks_go_on(pids)
        self.swap_in("newest", away="backup")
        self.wait_nodes(2)
        self.wait_step(self.step() + 1)
        self.assert_ranks_go_on(pids)

    def test_a_declared_restore_ends_no_rank_and_gives_no_epoch_twice(self):
        _, before = self.backup_then_go_on()
        self.train("unknown", "--set", "parallel.data=1")
        uid = self.job("unknown")["uid"]
        pids = self.rank_processes()
        self.swap_in("backup", away="newest")
        self.wait_refused("TERM_SUPERSEDED", pids)
        term = self.server()["term"]
        self.mtctl("admin", "restore", "--reason", "the disk was replaced", "--yes")
        self.assertGreaterEqual(self.server()["term"], term + 2**20)
        self.assertFalse(self.server().get("no_orders"))
        self.wait_nodes(2)
        # What the backup knows of is adopted in the epochs that were given since.
        for name, epoch in before.items():
            self.wait_for(f"{name} is adopted", lambda: (job := self.job(name))["state"] == "RUNNING" and job["epoch"] == epoch)
        self.wait_step(self.step("waiting") + 1, "waiting")
        self.assertEqual(self.state("filler"), "RUNNING")
        self.assert_ranks_go_on(pids)
        # What it does not know of is kept, and taken when somebody says so.
        found = self.wait_for("the orphans", self.orphans)
        self.assertEqual([(o["job_uid"], o["job_name"], o["nodes"], o["ranks"], o["world_size"]) for o in found],
                         [(uid, "unknown", ["node-b"], 1, 1)])
        self.assertNotEqual(self.mtctl("describe", "unknown", check=False).returncode, 0)
        # Until its assignment has come from all its agents, which the message says.
        self.wait_for("the adoption", lambda: self.mtctl("adopt", uid, check=False).returncode == 0)
        self.wait_state("RUNNING", "unknown")
        self.wait_step(self.step("unknown") + 1, "unknown")
        self.assertEqual(self.orphans(), [])
        self.assert_ranks_go_on(pids)
        self.assertLessEqual({"RestoreDeclared", "RestoreSettled"}, {e["type"] for e in self.all_events()})


class TwoCopiesTest(StoreFaultTest):
    other = None

    def tearDown(self):
        if self.other is not None:
            self.other.kill()
            self.other.wait()
        super().tearDown()

    def test_of_two_copies_one_is_obeyed(self):
        self.train()
        pids = self.rank_processes()
        self.stop_worker("node-a")
        self.copy_stopped_without_nodes("copy")
        other_port = free_port()
        log = open(self.dir / "copy.log", "ab")
        self.other = subprocess.Popen([str(BIN / "mt-coordinator"), "--listen", f"127.0.0.1:{other_port}", "--state",
                                       str(self.store("copy")), "--http-listen", "127.0.0.1:0"],
                                      stderr=log, stdout=log, env=self.env, stdin=subprocess.DEVNULL)
        log.close()
        # Its own one first, then the copy under the same term: a worker cannot tell which is the right one, and obeys the one
        # that it has obeyed already.
        self.start_worker("node-a", 2)
        self.wait_nodes(1)
        self.wait_obeyed("node-a")
        self.stop_worker("node-a")
        own, self.port = self.port, other_port
        self.env["MTCTL_COORDINATOR"] = f"127.0.0.1:{other_port}"
        self.start_worker("node-a", 2)
        self.wait_refused("TERM_SUPERSEDED", pids)
        self.assert_ranks_go_on(pids)
        self.stop_worker("node-a")
        self.port = own
        self.env["MTCTL_COORDINATOR"] = f"127.0.0.1:{own}"
        self.start_worker("node-a", 2)
        self.wait_nodes(1)
        self.wait_step(self.step() + 1)
        self.assertFalse(self.server().get("no_orders"))
        self.assert_ranks_go_on(pids)

    def copy_stopped_without_nodes(self, name):
        workers, self.workers = self.workers, {}
        self.copy_stopped(name)
        self.workers = workers


if __name__ == "__main__":
    unittest.main()
