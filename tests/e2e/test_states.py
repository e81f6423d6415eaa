"""Ranks that die in states which the other tests do not pass through, with the real programs: a stopped process (SIGSTOP) holds a job
in the state in question. What verbs do in such states is tests/daemon/keeper's (rows_test.cc)."""
import contextlib
import os
import signal
import unittest

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

    def test_held_job_whose_rank_dies_fails(self):
        self.train()
        self.mtctl("pause", "tiny", "--hold", "--wait")
        os.kill(self.rank_processes()[0], signal.SIGKILL)
        job = self.wait_state("FAILED", limit=30)
        self.assertIn("signal 9", job["message"])
        self.assertEqual(self.rank_processes(), [])


if __name__ == "__main__":
    unittest.main()
