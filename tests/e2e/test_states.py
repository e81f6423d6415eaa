"""Rows of the job table that the other tests do not pass through, with the real programs: a stopped process (SIGSTOP) holds a
job in the state in question."""
import contextlib
import json
import os
import signal
import time
import unittest

from service_harness import ServiceTest

LONG = ("--set", "training.train_iters=1000000", "--set", "checkpoint.every_iters=0")


class StateTest(ServiceTest):
    def signal_ranks(self, how):
        for pid in self.rank_processes():
            with contextlib.suppress(ProcessLookupError):  # one that was killed before may end just now
                os.kill(pid, how)

    def train(self, *flags, name="tiny"):
        self.submit(*LONG, "--set", f"name={name}", *flags)
        self.wait_step(3, name)

    def admit(self):
        """A job that its agent has not answered yet."""
        self.workers["node-a"].send_signal(signal.SIGSTOP)
        self.submit(*LONG)
        self.wait_state("ADMITTED")

    def go_on(self):
        self.workers["node-a"].send_signal(signal.SIGCONT)

    def conditions(self):
        return [c["type"] for c in self.job().get("conditions", [])]

    # --- QUEUED, PAUSED_RELEASED.
    def test_queued_pauses_resumes_and_ends(self):
        self.train(name="holder")
        for verb, state in (("cancel", "CANCELLED"), ("kill", "CANCELLED")):
            self.submit("--set", "name=waiting")
            self.assertEqual(self.state("waiting"), "QUEUED")
            self.mtctl("pause", "waiting", "--wait")
            self.assertEqual(self.state("waiting"), "PAUSED_RELEASED")
            self.mtctl("resume", "waiting")
            self.wait_state("QUEUED", "waiting")
            self.mtctl(verb, "waiting", "--yes")
            self.assertEqual(self.wait_state(state, "waiting")["ranks"], [])
            self.submit("--set", "name=waiting")
            self.mtctl("pause", "waiting", "--release", "--wait")
            self.mtctl(verb, "waiting", "--yes")
            self.wait_state(state, "waiting")

    def test_released_job_meets_its_deadline(self):
        self.train("--set", "resilience.deadline=8s")
        self.mtctl("pause", "tiny", "--release", "--wait")
        job = self.wait_state("FAILED", limit=30)
        self.assertEqual(job["cause"], "DEADLINE")

    # --- ADMITTED.
    def test_hold_of_an_admitted_job_holds_it_at_its_start(self):
        self.admit()
        self.mtctl("pause", "tiny", "--hold")
        self.assertEqual(self.state(), "ADMITTED")
        self.go_on()
        job = self.wait_state("PAUSED_HELD")
        # Its ranks were assigned before the word, which a step carries as soon as it has come: how many steps of a
        # millisecond that takes is the machine's load. From then on they stand.
        self.assertEqual({r["state"] for r in job["ranks"]}, {"HELD"})
        held_at = [r.get("step", 0) for r in job["ranks"]]
        time.sleep(1)
        self.assertEqual([r.get("step", 0) for r in self.job()["ranks"]], held_at)
        self.mtctl("resume", "tiny", "--wait")
        self.wait_step(5)

    def test_admitted_job_resumes_before_it_was_held(self):
        self.admit()
        self.mtctl("pause", "tiny", "--hold")
        self.mtctl("resume", "tiny")
        self.go_on()
        self.wait_step(5)
        self.assertEqual(self.state(), "RUNNING")
        pause = next(o for o in self.operations() if o["verb"] == "pause")
        self.assertTrue(pause["done"])
        self.assertIn("resume", json.dumps(pause["error"]))

    def test_admitted_job_is_released_and_placed_again(self):
        self.admit()
        self.mtctl("pause", "tiny", "--release")
        self.go_on()
        self.wait_state("PAUSED_RELEASED")
        self.assertEqual(self.rank_processes(), [])
        self.mtctl("resume", "tiny")
        self.wait_step(3)

    def test_admitted_job_is_cancelled(self):
        self.admit()
        done = self.start_mtctl("cancel", "tiny", "--yes")
        self.wait_state("STOPPING")
        self.go_on()
        self.wait_state("CANCELLED")
        self.assertEqual(done.wait(timeout=30), 0)
        done.communicate()
        self.wait_for("no ranks", lambda: not self.rank_processes())

    # --- PAUSING, RELEASING, STOPPING: the ranks stand still, so the word does not act.
    def test_pausing_job_resumes(self):
        self.train()
        self.signal_ranks(signal.SIGSTOP)
        self.mtctl("pause", "tiny", "--hold")
        self.wait_state("PAUSING")
        self.mtctl("resume", "tiny")
        self.signal_ranks(signal.SIGCONT)
        step = self.step()
        self.wait_step(step + 10)
        self.assertEqual(self.wait_state("RUNNING")["state"], "RUNNING")

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

    def test_releasing_job_is_killed(self):
        self.train()
        self.signal_ranks(signal.SIGSTOP)
        self.mtctl("pause", "tiny", "--release")
        self.wait_state("RELEASING")
        self.mtctl("kill", "tiny", "--yes")
        self.wait_state("CANCELLED")
        self.assertEqual(self.rank_processes(), [])

    def test_stopping_job_is_killed_without_its_save(self):
        self.train()
        self.signal_ranks(signal.SIGSTOP)
        saving = self.start_mtctl("cancel", "tiny", "--checkpoint", "--yes")
        self.wait_state("STOPPING")
        self.mtctl("kill", "tiny", "--yes")
        self.wait_state("CANCELLED")
        saving.communicate(timeout=30)
        self.assertEqual(self.rank_processes(), [])
        self.assertEqual([n for n in self.checkpoints() if n.startswith("step-")], [])

    def test_held_job_whose_rank_dies_fails(self):
        self.train()
        self.mtctl("pause", "tiny", "--hold", "--wait")
        os.kill(self.rank_processes()[0], signal.SIGKILL)
        job = self.wait_state("FAILED", limit=30)
        self.assertIn("signal 9", job["message"])
        self.assertEqual(self.rank_processes(), [])


if __name__ == "__main__":
    unittest.main()
