"""What a resume expects to find: the newest checkpoint that the coordinator knows of. A job whose checkpoints are gone waits for
them; it starts over, or further back, only where a user says so."""
import json
import shutil
import unittest

from service_harness import ServiceTest

LONG = ("--set", "training.train_iters=1000000", "--set", "checkpoint.every_iters=0", "--set", "checkpoint.keep_last=100")
MISSING = "ExpectedCheckpointMissing"


class ResumeBaseTest(ServiceTest):
    def setUp(self):
        super().setUp()
        self.root = self.dir / "ckpt"
        self.away = self.dir / "ckpt.away"

    def release(self):
        self.mtctl("pause", "tiny", "--release", "--wait")
        return self.job()["last_checkpoint"]

    def train_and_release(self):
        """A job with two checkpoints, the older by `checkpoint`, that holds nothing."""
        self.submit(*LONG)
        self.wait_step(5)
        self.mtctl("checkpoint", "tiny", "--wait")
        self.older = self.job()["last_checkpoint"]
        self.wait_step(self.older["step"] + 5)
        self.base = self.release()
        self.assertGreater(self.base["step"], self.older["step"])
        self.before = self.history()

    def resume(self, *flags, check=True):
        return self.mtctl("resume", "tiny", "--wait", *flags, check=check)

    def waiting(self):
        """The message of the condition Waiting where the job waits for its checkpoint."""
        job = self.job()
        for condition in job.get("conditions", []):
            if job["state"] == "QUEUED" and condition["type"] == "Waiting" and MISSING in condition.get("message", ""):
                return condition["message"]
        return ""

    def assert_refused(self, *flags, words=()):
        done = self.resume(*flags, check=False)
        self.assertNotEqual(done.returncode, 0, done.stdout)
        resume = max((o for o in self.operations() if o["verb"] == "resume"), key=lambda o: int(o["created_us"]))
        self.assertEqual(resume["error"]["reason"], "EXPECTED_CHECKPOINT_MISSING", resume)
        message = self.wait_for("the condition Waiting", self.waiting)
        for word in (str(self.base["step"]), self.base["digest"], str(self.root), *words):
            self.assertIn(word, message)
        self.assertEqual(self.job()["ranks"], [])
        self.assertEqual(self.rank_processes(), [])
        self.assertEqual(self.history(), self.before)

    def stop_worker_while_waiting(self):
        """Not within a try, which begins as soon as the node is there: that one would end only with the worker's return."""
        while True:
            self.wait_nodes(1)
            self.wait_for("the condition Waiting", self.waiting)
            self.stop_worker("node-a")
            self.wait_nodes(0)
            if self.waiting():
                return
            self.start_worker("node-a", 2)

    def assert_goes_on_from(self, checkpoint):
        self.wait_state("RUNNING")
        self.wait_step(checkpoint["step"] + 3)
        self.assertEqual(self.job()["resumed_from_step"], checkpoint["step"])

    def test_a_missing_root_is_waited_for_and_never_made(self):
        self.train_and_release()
        self.root.rename(self.away)
        self.assert_refused(words=("missing",))
        self.assertFalse(self.root.exists())
        self.away.rename(self.root)
        self.assert_goes_on_from(self.base)

    def test_another_root_is_named_and_stays_untouched(self):
        self.train_and_release()
        self.root.rename(self.away)
        self.root.mkdir()
        (self.root / ".megatrain-root").write_text(json.dumps(
            {"format": "megatrain-root", "version": 1, "id": "other-root", "made": "2026-01-01T00:00:00Z", "node": "x"}))
        self.assert_refused(words=("this is another root",))
        self.assertEqual([p.name for p in self.root.iterdir()], [".megatrain-root"])
        # An older checkpoint is not there either.
        self.assert_refused("--allow-older")
        # A start at step 0 is for the user to ask for.
        self.resume("--fresh")
        self.assertEqual(self.job().get("resumed_from_step", 0), 0)
        base = self.release()
        self.assert_after_fresh(base)

    def assert_after_fresh(self, base):
        """What was accepted once is not accepted for ever."""
        self.base, self.before = base, self.history()
        shutil.rmtree(self.root)
        self.assert_refused()

    def test_an_older_checkpoint_is_taken_only_where_that_is_allowed(self):
        self.train_and_release()
        self.away.mkdir()
        newest = self.folder() / self.base["path"].rsplit("/", 1)[1]
        newest.rename(self.away / newest.name)
        self.assert_refused(words=(f"step {self.older['step']}",))
        self.resume("--allow-older")
        self.assert_goes_on_from(self.older)

    def test_a_damaged_checkpoint_is_passed_over_and_said(self):
        for name, what in (("data", "rank-00000.safetensors"), ("rank", "rank-00000.json"), ("root", "manifest.json")):
            with self.subTest(what):
                self.submit(*LONG, "--set", f"name={name}")
                self.wait_step(3, name)
                self.mtctl("checkpoint", name, "--wait")
                older = self.job(name)["last_checkpoint"]
                self.wait_step(older["step"] + 3, name)
                self.mtctl("pause", name, "--release", "--wait")
                base = self.job(name)["last_checkpoint"]
                file = self.folder(name) / base["path"].rsplit("/", 1)[1] / what
                data = bytearray(file.read_bytes())
                data[-20] ^= 0x55
                file.write_bytes(data)
                self.mtctl("resume", name, "--wait")
                self.assertEqual(self.job(name)["resumed_from_step"], older["step"])
                events = [e["message"] for e in self.events(name) if e["type"] == "CheckpointDamaged"]
                self.assertEqual(len(events), 1, events)
                self.assertIn(base["path"].rsplit("/", 1)[1], events[0])
                self.mtctl("cancel", name, "--yes", "--wait")

    def test_a_job_that_waits_for_its_checkpoint_is_overtaken(self):
        self.train_and_release()
        self.root.rename(self.away)
        self.assert_refused()
        self.root.mkdir()
        # Both slots, a lower priority, submitted later.
        self.submit("--set", "name=later", "--set", "priority=-1")
        self.wait_state("SUCCEEDED", "later")
        self.assertTrue(self.wait_for("still waiting", self.waiting))

    def test_a_waiting_job_ends_and_pauses(self):
        self.train_and_release()
        self.root.rename(self.away)
        self.assert_refused()
        self.mtctl("pause", "tiny", "--release", "--wait")
        self.assertEqual(self.state(), "PAUSED_RELEASED")
        self.assert_refused()
        self.mtctl("cancel", "tiny", "--yes")
        self.wait_state("CANCELLED")

    def test_a_new_job_after_the_checkpoints_were_removed_starts_over(self):
        self.train_and_release()
        self.mtctl("cancel", "tiny", "--yes")
        self.wait_state("CANCELLED")
        shutil.rmtree(self.folder())
        self.submit("--follow")
        self.assertEqual(self.job().get("resumed_from_step", 0), 0)

    def test_a_coordinator_that_starts_again_still_waits_and_still_allows(self):
        self.train_and_release()
        self.root.rename(self.away)
        self.assert_refused()
        self.kill_coordinator()
        self.start_coordinator()
        self.wait_api()
        self.stop_worker_while_waiting()
        self.root.mkdir()
        # Durable: given while no node is there, in force when one comes.
        self.mtctl("resume", "tiny", "--fresh")
        self.kill_coordinator()
        self.start_coordinator()
        self.wait_api()
        self.start_worker("node-a", 2)
        self.wait_state("RUNNING")
        self.assertEqual(self.job().get("resumed_from_step", 0), 0)

    def test_a_job_without_a_base_needs_its_root(self):
        self.root.rename(self.away)
        self.submit(*LONG)
        job = self.wait_state("FAILED")
        self.assertEqual(job["cause"], "STORAGE")
        self.assertIn(str(self.root), job["message"])
        self.assertIn("missing", job["message"])
        self.assertFalse(self.root.exists())


if __name__ == "__main__":
    unittest.main()
