"""A rank that stops, in the middle of a job that trains: who stands still, and where, is told to the operator."""
import os
import re
import signal
import unittest

from service_harness import ServiceTest

# Seconds. Not below four beats: a rank that waits in a collective and does not get its processor for longer would be reported as frozen,
# and so told from the one that is. And the limit of progress not within two beats of it, so that the frozen one is known to be frozen when
# it is reported with those that wait for it.
FROZEN, STALLED = 8, 10
MARK = r"step \d+"  # "step 41, microbatch 0, chunk 0: dp_comm; 0 marks enqueued behind it", or "end of step 40; ..."


class StallTest(ServiceTest):
    autostart = False

    def start_training(self, limit=STALLED, names=("tiny",)):
        """Jobs of two ranks, until the worker has heard of five steps of each rank: the first ones of a run may take ten minutes. Returns
        the pids of their second ranks."""
        self.start_coordinator()
        self.start_worker("node-a", 2 * len(names), "--stall-after", str(limit), "--frozen-after", str(FROZEN))
        self.wait_nodes(1)
        for name in names:
            self.submit("--set", f"name={name}", "--set", "training.train_iters=1000000", "--set", "checkpoint.every_iters=0")
        self.wait_for("steps of all ranks", lambda: sum(
            float(count) >= 5 for count in re.findall(r"(?m)^mt_step_duration_seconds_count\{[^}]*\} (\S+)$",
                                                      self.http(self.worker_args["node-a"][2]))) == 2 * len(names))
        return [next(r["pid"] for r in self.job(name)["ranks"] if r["rank"] == 1) for name in names]

    def stalled(self, count, name="tiny"):
        job = self.job(name)
        return job if sum("stall" in rank for rank in job["ranks"]) == count else None

    def test_a_frozen_rank_is_named_with_where_each_device_stands(self):
        # Of two jobs at once: one goes on, one ends.
        frozen, killed = self.start_training(names=("tiny", "killed"))
        for victim in (frozen, killed):
            os.kill(victim, signal.SIGSTOP)
        try:
            job = self.wait_for("both ranks reported", lambda: self.stalled(2), limit=90)
            self.wait_for("those of the other job, too", lambda: self.stalled(2, "killed"), limit=90)
        finally:
            os.kill(frozen, signal.SIGCONT)
        self.describe_shows_it_and_its_end_tells_where_it_stood("killed", killed)
        self.assertEqual(job["state"], "RUNNING")
        condition = next(c for c in job["conditions"] if c["type"] == "NoProgress")
        self.assertEqual(condition["message"],
                         "2 of 2 ranks stand still; without a beat: rank 1 (dp 1) on node-a", "the culprit by name")
        # The other one waits for it in a collective, says its device's mark.
        waiting = job["ranks"][0]["stall"]
        self.assertEqual(int(waiting["last_beat_us"]), 0)
        self.assertRegex(waiting["mark"], r"^step \d+, microbatch \d+, chunk 0: dp_comm; \d+ marks enqueued behind it$")
        self.assertGreater(int(job["ranks"][1]["stall"]["last_beat_us"]), 0)
        self.assertRegex(job["ranks"][1]["stall"]["mark"], MARK)
        stalled = [e["message"] for e in self.events() if e["type"] == "RankStalled"]
        told = [re.match(r"rank 0 \(dp 0\) on node-a: no progress for (\d+) s.*device at step", m) for m in stalled]
        self.assertTrue(any(m and int(m[1]) >= STALLED for m in told), stalled)
        self.assertIn("a rank shows no progress", (self.dir / "node-a.log").read_text())
        # It goes on where it stood, and so does the job.
        step = self.step()
        self.wait_step(step + 5)
        self.wait_for("nothing stands still", lambda: not self.job().get("conditions"))
        self.assertIn("ProgressResumed", [e["type"] for e in self.events()])

    def describe_shows_it_and_its_end_tells_where_it_stood(self, name, victim):
        text = self.mtctl("describe", name).stdout
        self.assertRegex(text, r"Without progress:\n  rank 0 \(dp 0\) on node-a: no progress for \d+ s; device at step \d+, "
                               r"microbatch \d+, chunk 0: dp_comm; \d+ marks enqueued behind it\n"
                               r"  rank 1 \(dp 1\) on node-a: no progress for \d+ s, no beat for \d+ s: its process is frozen "
                               r"or starved; device last at .*step \d+")
        os.kill(victim, signal.SIGKILL)
        job = self.wait_state("FAILED", name)
        self.assertEqual(job["failed_rank"], 1)
        self.assertRegex(job["message"], r"signal 9.*it had shown no progress for \d+ s, its device at .*step \d+")
        # The one that waited was told to leave: its log has the mark too.
        log = next((self.dir / "logs").rglob(f"{name}-*/rank-00000.log")).read_text()
        self.assertRegex(log, r"device=\"step \d+, microbatch \d+, chunk 0: dp_comm")
        self.assertNotIn("conditions", {k: v for k, v in job.items() if v})

    def test_a_rank_without_a_beat_is_named_before_the_limit_of_a_step(self):
        victim, = self.start_training(600)
        os.kill(victim, signal.SIGSTOP)
        try:
            job = self.wait_for("the silent rank reported", lambda: self.stalled(1), limit=60)
        finally:
            os.kill(victim, signal.SIGCONT)
        self.assertEqual(next(c["message"] for c in job["conditions"] if c["type"] == "NoProgress"),
                         "1 of 2 ranks stand still; without a beat: rank 1 (dp 1) on node-a")
        stall = job["ranks"][1]["stall"]
        self.assertGreater(int(stall["last_beat_us"]), 0)
        self.assertEqual(int(stall["limit_ms"]), 1000 * FROZEN)
        stalled = [e["message"] for e in self.events() if e["type"] == "RankStalled" and e["message"].startswith("rank 1 ")]
        self.assertTrue(stalled, self.events())
        told = re.match(r"rank 1 \(dp 1\) on node-a: no progress for (\d+) s, no beat for (\d+) s: its process is frozen", stalled[-1])
        self.assertTrue(told and int(told[2]) >= FROZEN, stalled)
        self.wait_for("nothing stands still", lambda: not self.job().get("conditions"))
        self.assertEqual(self.job()["state"], "RUNNING")


if __name__ == "__main__":
    unittest.main()
