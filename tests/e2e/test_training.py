"""A whole run through mtctl, coordinator, worker, shims and ranks."""
import json
import math
import signal
import unittest

from harness import ClusterTest


def records_of(data):
    """The messages of an event file, which lie between 12 bytes of length and sum and 4 of sum."""
    while data:
        size = int.from_bytes(data[:8], "little")
        yield data[12:12 + size]
        data = data[16 + size:]


class TrainingTest(ClusterTest):
    def test_trains_evaluates_saves_and_ends(self):
        self.up()
        done = self.submit("--follow", "--set", "checkpoint.every_iters=20", "--set", "training.eval.every_iters=20",
                           "--set", "training.eval.iters=2", "--set", "telemetry.tensorboard=curves")
        self.assertIn("checkpoint saved at step 20", done.stdout)
        self.assertRegex(done.stdout, r"valid loss \d\.\d+ at step 20")
        self.assertIn("whole split", done.stdout)
        job = self.job()
        self.assertEqual(job["state"], "SUCCEEDED")
        self.assertEqual(job["last_step"]["step"], 40)
        self.assertEqual(job["last_step"]["consumed_samples"], 320)
        # First loss: ln 257 within the spread of a random model; it must have fallen.
        self.assertAlmostEqual(job["first_step"]["loss"], 5.549, delta=0.15)
        self.assertLess(job["last_step"]["loss"], job["first_step"]["loss"] - 0.5)
        self.assertLess(job["last_eval"]["loss"], 5.0)
        self.assertTrue(job["last_eval"]["final"])
        # Each byte is a token, and the end of a document is a token of none.
        self.assertGreater(job["last_eval"]["bits_per_byte"], job["last_eval"]["loss"] / math.log(2))
        self.assertLess(job["last_eval"]["bits_per_byte"], 1.1 * job["last_eval"]["loss"] / math.log(2))
        self.assertAlmostEqual(job["last_eval"]["perplexity"], math.exp(job["last_eval"]["loss"]), delta=1e-6)
        self.assertRegex(self.mtctl("describe", "tiny").stdout, r"Validation loss: .* perplexity \S+, \d\.\d{4} bits per byte\n")
        self.assertRegex(self.mtctl("plot", "tiny", "bits_per_byte", "--ascii").stdout, "bits_per_byte .* validation bits_per_byte")
        self.assertGreater(job["last_step"]["tokens_per_second"], 0)
        self.assertGreater(job["last_step"]["tflops_per_slot"], 0)
        self.assertGreater(job["last_step"]["memory_bytes"]["weights"], 0)
        self.assertEqual(self.checkpoints(), ["step-00000020-e0001", "step-00000040-e0001"])
        self.assertTrue(all(slot["job_uid"] == "" for slot in self.nodes()[0]["slots"]))
        logs = self.mtctl("logs", "tiny", "--ranks", "0,1")
        self.assertIn("[1] ", logs.stdout)
        self.assertIn("step=40", logs.stdout.replace(" step 40", " step=40"))
        self.assertEqual(self.mtctl("wait", "tiny").returncode, 0)
        (events,) = self.dir.rglob("logs/curves/tiny-*/events.out.tfevents.*")
        # What the worker writes last, a record at a time.
        written = self.wait_for("the last event", lambda: (w := events.read_bytes()) and b"lm loss validation final" in w and w)
        losses = [r for r in records_of(written) if b"\x0a\x07lm loss\x15" in r]
        self.assertEqual(len(losses), 40)
        self.assertIn(b"batch-size", losses[0])
        self.assertIn(b"brain.Event:2", next(records_of(written)))

    def test_submitted_again_it_resumes_instead_of_starting_cold(self):
        self.up()
        long_run = ["--set", "training.train_iters=100000", "--set", "checkpoint.every_iters=10"]
        self.submit(*long_run)
        self.wait_for("a checkpoint", lambda: self.checkpoints())
        self.mtctl("cancel", "tiny", "--yes", "--checkpoint")
        stopped_at = int(self.checkpoints()[-1][5:13])
        first_uid = self.job()["uid"]
        self.submit(*long_run)
        job = self.wait_for("training", lambda: (j := self.job()).get("last_step", {}).get("step", 0) > stopped_at and j)
        self.assertNotEqual(job["uid"], first_uid)
        self.assertEqual(job["resumed_from_step"], stopped_at)
        self.assertEqual(job["first_step"]["step"], stopped_at + 1)
        self.wait_for("a checkpoint of a new epoch", lambda: self.checkpoints()[-1].endswith("e0002"))
        self.mtctl("cancel", "tiny", "--yes")

    def test_a_second_stage_goes_on_with_its_own_run(self):
        self.up()
        self.submit("--wait", "--set", "name=first")
        stage = ["--set", "name=second", "--set", "checkpoint.load=default/first", "--set", "checkpoint.load_kind=weights",
                 "--set", "training.train_iters=100000", "--set", "checkpoint.every_iters=10", "--set", "checkpoint.keep_last=2"]
        told = self.submit("--wait", *stage, "--set", "training.exit_at_iter=25").stderr
        self.assertRegex(told, r"reads 25\.60M tokens in 100000 steps; \d+\.\d passes over train")
        begun = self.job("second")
        self.assertEqual(begun.get("resumed_from_step", 0), 0)
        self.assertFalse(begun["run"]["start"].get("changed"))
        told = self.submit("--wait", *stage, "--set", "training.exit_at_iter=35", "--set", "optimizer.lr=5e-4").stderr
        change = "optimizer.lr 0.001 -> 0.0005"
        self.assertIn(f"differs from the checkpoint of step 25 that it goes on from: {change}", told)
        again = self.job("second")
        self.assertEqual((again["resumed_from_step"], again["first_step"]["step"]), (25, 26))
        self.assertEqual(again["run"]["id"], begun["run"]["id"])
        self.assertEqual(again["run"]["start"]["changed"], [change])
        self.assertIn(f"since the checkpoint of step 25: {change}", self.mtctl("describe", "second").stdout)
        logs = self.mtctl("logs", "second", "--ranks", "0").stdout
        self.assertIn(change, logs)
        self.assertIn("passes_over_train=", logs)
        self.assertEqual(self.checkpoints("second"), ["step-00000030-e0002", "step-00000035-e0002"])
        self.submit(*stage)
        self.wait_for("a save", lambda: self.job("second").get("last_checkpoint", {}).get("step", 0) > 35)
        self.mtctl("pause", "second", "--release", "--wait")
        saved = self.job("second")["last_checkpoint"]["step"]
        self.mtctl("resume", "second", "--wait")
        self.wait_for("the released job", lambda: self.job("second").get("resumed_from_step") == saved)
        self.mtctl("kill", "second", "--yes")

    def test_a_run_that_learns_nothing_fails(self):
        self.up()
        done = self.submit("--wait", "--set", "training.precision=fp16", "--set", "training.loss_scale.value=1e12",
                           "--set", "training.nonfinite=skip", "--set", "checkpoint.every_iters=10", check=False)
        self.assertEqual(done.returncode, 9, done.stderr)
        job = self.job()
        self.assertEqual((job["state"], job["cause"]), ("FAILED", "NUMERIC"))
        self.assertGreater(job["skipped_steps"], 30)
        self.assertIn("training.loss_scale.value", job["message"])

    def test_ctrl_c_leaves_the_job_running_and_says_how_to_cancel(self):
        self.up()
        follow = self.start_mtctl("submit", "-f", str(self.job_file), "--follow", "--set", "training.train_iters=100000")
        self.wait_for("training", lambda: self.mtctl("describe", "tiny", check=False).returncode == 0 and
                      self.job().get("last_step", {}).get("step", 0) > 3)
        follow.send_signal(signal.SIGINT)
        _, stderr = follow.communicate(timeout=10)
        self.assertEqual(follow.returncode, 5)
        self.assertIn("mtctl cancel tiny", stderr)
        step = self.job()["last_step"]["step"]
        self.wait_for("more steps", lambda: self.job()["last_step"]["step"] > step)
        self.mtctl("cancel", "tiny", "--yes", "--reason", "enough")
        self.assertEqual(self.job()["state"], "CANCELLED")
        self.assertEqual(self.mtctl("wait", "tiny", check=False).returncode, 9)
        self.assertEqual([r["exit_code"] for r in self.job()["ranks"]], [0, 0])

    def test_a_job_larger_than_the_cluster_waits_and_says_why(self):
        self.up()
        done = self.submit("--set", "parallel.data=4")
        self.assertEqual(done.returncode, 0)
        self.assertRegex(done.stdout, r"waiting: .*4.*2")
        self.assertEqual(self.mtctl("wait", "tiny", "--timeout", "1", check=False).returncode, 8)
        self.mtctl("cancel", "tiny", "--yes")
        self.assertEqual(self.job()["state"], "CANCELLED")

    def test_jobs_queue_for_slots(self):
        self.up()
        self.submit("--set", "training.train_iters=100000")
        self.submit("--set", "name=second")
        self.wait_for("second to wait", lambda: self.job("second")["message"])
        self.assertEqual(self.job("second")["state"], "QUEUED")
        self.mtctl("cancel", "tiny", "--yes")
        self.assertEqual(self.mtctl("wait", "second").returncode, 0)
        names = [j["name"] for j in json.loads(self.mtctl("-o", "json", "get", "jobs").stdout)["jobs"]]
        self.assertEqual(names, ["second", "tiny"])

    def test_dev_up_twice_and_status(self):
        self.assertEqual(self.mtctl("dev", "status", check=False).returncode, 1)
        self.up()
        self.assertIn("already up", self.mtctl("dev", "up").stdout)
        self.assertEqual(self.mtctl("dev", "status").returncode, 0)
        self.mtctl("dev", "down")
        self.assertEqual(self.mtctl("dev", "status", check=False).returncode, 1)
        # What was known before is known again.
        self.up()
        self.submit("--follow")
        self.mtctl("dev", "down")
        self.up()
        self.assertEqual(self.job()["state"], "SUCCEEDED")


if __name__ == "__main__":
    unittest.main()
