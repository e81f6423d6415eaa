"""A coordinator that does not know the ranks of its nodes ends none of them: it shows them, and takes them over when it is told to.

The other coordinator is one with a state folder of its own, as after a volume that was not mounted.
"""
import json
import os
import subprocess
import unittest

from harness import BIN
from service_harness import ServiceTest


class OrphansTest(ServiceTest):
    slots = 2

    def replace_store(self):
        """A coordinator of a new cluster takes the place of the other one, and the node joins it; its ranks work on meanwhile."""
        self.kill_coordinator()
        os.rename(self.dir / "coordinator", self.dir / "away")
        self.start_coordinator()
        self.wait_api()
        cluster = json.loads(self.mtctl("version", "-o", "json").stdout)["server"]["cluster_id"]
        self.stop_worker("node-a")
        subprocess.run([str(BIN / "mt-worker"), "join", cluster, "--state", str(self.dir / "node-a")], check=True, capture_output=True,
                       timeout=30, env=self.env)
        self.start_worker("node-a", 2)

    def orphans(self):
        return json.loads(self.mtctl("-o", "json", "get", "orphans").stdout).get("orphans", [])

    def start_training(self):
        self.submit("--set", "training.train_iters=1000000", "--set", "checkpoint.every_iters=0")
        self.wait_step(5)
        return self.rank_processes()

    def test_an_empty_store_ends_no_rank_and_adopts_the_job(self):
        pids = self.start_training()
        uid = self.job("tiny")["uid"]
        step = self.step()
        self.replace_store()
        self.wait_nodes(1)
        found = self.wait_for("the orphans", self.orphans)
        self.wait_heartbeats(1)
        self.assertEqual(self.rank_processes(), pids, "ranks were ended")
        self.assertEqual([(o["job_uid"], o["job_name"], o["ranks"], o["world_size"]) for o in found], [(uid, "tiny", 2, 2)])
        # Its slots are used, its name is not known yet.
        self.assertNotEqual(self.mtctl("describe", "tiny", check=False).returncode, 0)
        self.wait_for("the adoption", lambda: self.mtctl("adopt", "tiny", check=False).returncode == 0)
        job = self.wait_state("RUNNING")
        self.assertEqual(job["uid"], uid)
        self.wait_step(step + 5)
        self.assertEqual(self.rank_processes(), pids)
        self.assertEqual(self.orphans(), [])
        self.mtctl("cancel", "tiny", "--yes")
        self.wait_state("CANCELLED")
        self.assertEqual(self.rank_processes(), [])

    def test_kill_orphan_ends_them(self):
        self.start_training()
        uid = self.job("tiny")["uid"]
        self.replace_store()
        self.wait_nodes(1)
        self.wait_for("the orphans", self.orphans)
        self.mtctl("node", "kill-orphan", "node-a", uid, "--yes")
        self.wait_for("their end", lambda: not self.rank_processes() and not self.orphans())

    def test_undisturbed_lives_have_no_mismatch(self):
        self.submit("--set", "training.train_iters=40", "--set", "checkpoint.every_iters=0", "--follow", timeout=120)
        self.start_training_of("second")
        self.stop_worker("node-a")
        self.start_worker("node-a", 2)
        self.wait_nodes(1)
        self.wait_heartbeats(2)  # each is compared with what the node should hold
        self.mtctl("pause", "second", "--wait")
        self.mtctl("resume", "second", "--wait")
        self.wait_heartbeats(2)
        self.mtctl("kill", "second", "--yes")
        self.wait_state("CANCELLED", "second")
        self.wait_heartbeats(2)
        metrics = self.http(self.http_port)
        self.assertIn("mt_held_mismatches_total 0", metrics)

    def start_training_of(self, name):
        self.submit("--set", f"name={name}", "--set", "training.train_iters=1000000", "--set", "checkpoint.every_iters=0")
        self.wait_step(3, name)


if __name__ == "__main__":
    unittest.main()
