"""Ranks that die in states which the other tests do not pass through, with the real programs: a stopped process (SIGSTOP) holds a job
in the state in question. What verbs do in such states is tests/daemon/keeper's (rows_test.cc)."""
import contextlib
import os
import signal
import unittest

from harness import RESTARTS
from service_harness import ServiceTest

LONG = ("--set", "training.train_iters=1000000", "--set", "checkpoint.every_iters=0")


class StateTest(ServiceTest):
    def signal_ranks(self, how):
        for pid in self.rank_processes():
            with contextlib.suppress(ProcessLookupError):  # one that was killed before may end just now
                os.kill(pid, how)

    def train(self):
        self.submit(*LONG)
        self.wait_step(3)

    def test_releasing_job_whose_rank_dies_is_released_without_its_last_steps(self):
        self.train()
        self.mtctl("checkpoint", "tiny", "--wait")
        saved = self.job()["last_checkpoint"]["step"]
        self.wait_step(int(saved) + 5)
        self.signal_ranks(signal.SIGSTOP)
        self.mtctl("pause", "tiny", "--release")
        self.wait_state("RELEASING")
        os.kill(self.rank_processes()[1], signal.SIGKILL)
        self.signal_ranks(signal.SIGCONT)
        job = self.wait_state("PAUSED_RELEASED")
        self.assertIn("CheckpointStale", [c["type"] for c in job["conditions"]])
        self.mtctl("resume", "tiny")
        self.wait_for("training again", lambda: (j := self.job())["state"] == "RUNNING" and j["epoch"] % 2**20 == 2)
        self.wait_for("from the last checkpoint", lambda: self.job().get("resumed_from_step") == saved)

    def recovered(self, name):
        """The job, once its next epoch's ranks are ready."""
        return self.wait_for("the next epoch", lambda: [e["type"] for e in self.events(name)].count("Recovered") == 1 and self.job(name),
                             limit=60)

    def test_job_whose_rank_dies_comes_back_and_trains_as_if_nothing_had_been(self):
        flags = ("--set", "training.train_iters=1000000", "--set", "checkpoint.every_iters=20")
        self.submit(*flags, *RESTARTS)
        before = self.wait_for("a save", lambda: (j := self.job()).get("last_checkpoint") and j)
        os.kill(self.rank_processes()[1], signal.SIGKILL)
        job = self.recovered("tiny")
        self.assertEqual(job["epoch"] % 2**20, 2)
        self.assertEqual(job["run"]["id"], before["run"]["id"])
        self.assertGreaterEqual(int(job["resumed_from_step"]), 20)
        self.assertEqual([(r["node"], r["slot"]) for r in job["ranks"]], [(r["node"], r["slot"]) for r in before["ranks"]])
        self.assertEqual((job["restarts"]["infrastructure"], job["restarts"]["cause"]), (1, "INTERNAL"))
        self.assertRegex(self.mtctl("describe", "tiny").stdout, r"Restarts: +1 \(infrastructure 1 of 10 in an hour, ")
        self.wait_step(int(job["restarts"]["step"]) + 20)
        self.assert_as_undisturbed(*flags)

    def saved(self, name, *flags):
        """Submits an endless job and waits for its first save: the job then."""
        self.submit("--set", f"name={name}", "--set", "training.train_iters=1000000", "--set", "checkpoint.every_iters=20", *flags)
        return self.wait_for(f"a save of {name}", lambda: (j := self.job(name)).get("last_checkpoint") and j)

    def test_what_a_job_begins_with_is_for_its_first_epoch(self):
        self.saved("source")
        self.mtctl("kill", "source", "--yes", "--wait")
        begun = int(self.job("source")["last_checkpoint"]["step"])
        for name, flag, first in (("fresh", "checkpoint.fresh=true", 20), ("load", "checkpoint.load=default/source", begun + 20)):
            with self.subTest(name):
                before = self.saved(name, "--set", flag, *RESTARTS)
                os.kill(self.rank_processes()[0], signal.SIGKILL)
                job = self.recovered(name)
                self.assertGreaterEqual(int(job["resumed_from_step"]), first)
                self.assertEqual(job["run"]["id"], before["run"]["id"])
                self.mtctl("kill", name, "--yes", "--wait")

    def test_held_job_whose_rank_dies_fails(self):
        self.train()
        self.mtctl("pause", "tiny", "--hold", "--wait")
        os.kill(self.rank_processes()[0], signal.SIGKILL)
        job = self.wait_state("FAILED", limit=30)
        self.assertIn("signal 9", job["message"])
        self.assertEqual(self.rank_processes(), [])


if __name__ == "__main__":
    unittest.main()
