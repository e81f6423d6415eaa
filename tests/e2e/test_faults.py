"""Parts that fail while a job trains."""
import os
import signal
import subprocess
import unittest

from harness import BIN, ClusterTest
from processes import alive_with
from service_harness import make_store


class FaultTest(ClusterTest):
    def start_long_job(self):
        self.up()
        self.submit("--set", "training.train_iters=1000000", "--set", "checkpoint.every_iters=0")
        self.wait_for("training", lambda: self.job().get("last_step", {}).get("step", 0) > 5)

    def test_coordinator_killed_steps_go_on_and_metrics_resume(self):
        self.start_long_job()
        before = self.job()
        coordinator, _ = self.dev_pids()
        rank_pids = sorted(r["pid"] for r in before["ranks"])
        log = self.rank_log()
        os.kill(coordinator, signal.SIGKILL)
        self.wait_for("the coordinator's end", lambda: coordinator not in alive_with("mt-coordinator"))
        size = log.stat().st_size
        self.wait_for("steps without a coordinator", lambda: log.stat().st_size > size + 200)
        self.assertEqual(self.mtctl("--connect-timeout", "1", "describe", "tiny", check=False).returncode, 2)
        port = self.endpoint().rsplit(":", 1)[1]
        again = subprocess.Popen([str(BIN / "mt-coordinator"), "--listen", f"127.0.0.1:{port}", "--http-listen", "127.0.0.1:0", "--state",
                                  str(self.dir / "s/megatrain/dev/coordinator")], stderr=subprocess.DEVNULL)
        try:
            self.wait_for("the job listed again", lambda: self.mtctl("describe", "tiny", check=False).returncode == 0)
            job = self.job()
            self.assertEqual(job["uid"], before["uid"])
            self.assertEqual(job["state"], "RUNNING")
            step = before["last_step"]["step"]
            self.wait_for("metrics again", lambda: self.job().get("last_step", {}).get("step", 0) > step + 5)
            self.assertEqual(sorted(r["pid"] for r in self.job()["ranks"]), rank_pids, "ranks were disturbed")
            self.mtctl("cancel", "tiny", "--yes")
            self.assertEqual(self.job()["state"], "CANCELLED")
        finally:
            again.kill()
            again.wait()

    def rank_log(self):
        logs = sorted((self.dir / "s/megatrain/dev/logs").rglob("*rank*0*.log"))
        self.assertTrue(logs)
        return logs[0]

    def test_rank_killed_the_job_fails_with_cause_and_nothing_remains(self):
        self.start_long_job()
        victim = next(r for r in self.job()["ranks"] if r["rank"] == 1)
        os.kill(victim["pid"], signal.SIGKILL)
        # A rank that nobody told to leave would wait in its collective for ten minutes. P3's seconds are looked at where the clock is
        # the test's (tests/worker/node).
        job = self.wait_for("FAILED", lambda: (j := self.job())["state"] == "FAILED" and j)
        self.assertEqual(job["failed_rank"], 1)
        self.assertIn("signal 9", job["message"] + str([r["exit_signal"] for r in job["ranks"]]).replace("[", "signal "))
        self.assertEqual(next(r for r in job["ranks"] if r["rank"] == 1)["exit_signal"], 9)
        self.assertNotEqual(job["cause"], "CAUSE_UNSPECIFIED")
        self.assertTrue(job["last_log_lines"])
        # One look: those of other tests come and go.
        self.assertEqual([p for p in alive_with("mt-rank") if self.mine(p)], [])
        self.assertEqual(self.mtctl("wait", "tiny", check=False).returncode, 9)
        # The slots serve the next job.
        self.submit("--follow", "--set", "name=next")

    def mine(self, pid):
        try:
            with open(f"/proc/{pid}/environ", "rb") as f:
                return str(self.dir).encode() in f.read()
        except OSError:
            return False

    def test_agent_killed_its_ranks_end_and_the_job_fails(self):
        self.start_long_job()
        _, worker = self.dev_pids()
        pids = [r["pid"] for r in self.job()["ranks"]]
        os.kill(worker, signal.SIGKILL)
        self.wait_for("the ranks' end", lambda: not any(os.path.exists(f"/proc/{p}") for p in pids), limit=20)
        self.up()
        job = self.wait_for("FAILED", lambda: (j := self.job())["state"] == "FAILED" and j, limit=60)
        self.assertIn(job["cause"], ("INTERNAL", "NETWORK"))
        self.submit("--follow", "--set", "name=next")

    def test_second_coordinator_on_the_same_store_is_refused(self):
        self.up()
        done = subprocess.run([str(BIN / "mt-coordinator"), "--listen", "127.0.0.1:0", "--state",
                               str(self.dir / "s/megatrain/dev/coordinator")], capture_output=True, text=True, timeout=20)
        self.assertNotEqual(done.returncode, 0)
        self.assertRegex(done.stderr, r"(?i)another coordinator|in use|lock")
        self.submit("--follow")

    def test_port_in_use_is_one_clear_message(self):
        self.up()
        make_store(self.dir / "other")
        done = subprocess.run([str(BIN / "mt-coordinator"), "--listen", self.endpoint(), "--state",
                               str(self.dir / "other")], capture_output=True, text=True, timeout=20)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(self.endpoint().rsplit(":", 1)[1], done.stderr)
        self.assertIn("another program listens there", done.stderr)


if __name__ == "__main__":
    unittest.main()
