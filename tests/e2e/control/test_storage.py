"""Storage that fails under the real programs: what was trained is kept, training goes on, and what a user is told is true."""
import os
import signal
import subprocess
import unittest

from service_harness import ServiceTest, shown_epoch
import required

LONG = ("--set", "training.train_iters=1000000", "--set", "checkpoint.every_iters=0")


class StorageTest(ServiceTest):
    def conditions(self, name="tiny"):
        return [c["type"] for c in self.job(name).get("conditions", [])]

    def last(self, verb, mode=None):
        """The newest operation of that verb."""
        found = [o for o in self.operations() if o["verb"] == verb and mode in (None, o.get("mode"))]
        return max(found, key=lambda o: int(o["created_us"]))

    def done(self, verb, mode=None):
        """The newest operation of that verb, once it has ended."""
        return self.wait_for(f"the end of {verb}", lambda: (o := self.last(verb, mode)).get("done") and o)

    def saves(self):
        return [e for e in self.events() if e["type"] == "CheckpointSaved"]


class VanishedFolderTest(StorageTest):
    """The job's folder, or its FENCE, is not there when a save comes."""

    def setUp(self):
        super().setUp()
        self.place = self.folder()
        self.aside = self.dir / "aside"

    def train(self, *flags):
        self.submit("--set", "training.train_iters=1000000", "--set", "checkpoint.every_iters=20", *flags)
        self.wait_for("a first checkpoint", self.saves)

    def test_a_folder_that_is_away_fails_saves_until_it_is_back(self):
        self.train()
        self.place.rename(self.aside)
        self.wait_for("a failed save", lambda: any(e["type"] == "CheckpointFailed" for e in self.events()))
        self.assertEqual(self.state(), "RUNNING")
        self.wait_for("the condition", lambda: "CheckpointStale" in self.conditions())
        step = self.step()
        self.wait_step(step + 50)
        self.assertFalse(self.place.exists(), "nobody makes a folder that is away")
        self.aside.rename(self.place)
        count = len(self.saves())
        self.wait_for("later saves", lambda: len(self.saves()) > count)
        self.wait_for("the condition to go", lambda: "CheckpointStale" not in self.conditions())
        job = self.job()
        self.assertEqual((job["state"], shown_epoch(job)), ("RUNNING", "1.1"))
        self.assertEqual(len(self.rank_processes()), 2)

    def test_a_release_without_the_folder_holds_the_ranks(self):
        self.train()
        self.place.rename(self.aside)
        self.mtctl("pause", "tiny", "--release", "--wait", check=False)
        self.assertEqual(self.state(), "PAUSED_HELD")
        self.assertEqual(self.done("pause")["error"]["reason"], "SAVE_FAILED")
        step = {r["step"] for r in self.job()["ranks"]}
        self.assertEqual(len(step), 1, "all ranks hold after one step")
        self.aside.rename(self.place)
        self.mtctl("pause", "tiny", "--release", "--wait")
        job = self.job()
        self.assertEqual(job["state"], "PAUSED_RELEASED")
        self.assertEqual({job["last_checkpoint"]["step"]}, step)


class FullDiskReleaseTest(StorageTest):
    """The checkpoint root is a file system without room."""

    def setUp(self):
        super().setUp()
        self.root = self.dir / "ckpt"
        self.root.mkdir(exist_ok=True)
        done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(self.root)], capture_output=True, text=True)
        if done.returncode != 0:
            required.missing("cannot mount a tmpfs (this needs root): " + done.stderr)
        self.addCleanup(subprocess.run, ["umount", "-l", str(self.root)], check=True)

    def fill(self):
        file = os.open(self.root / "full", os.O_WRONLY | os.O_CREAT)
        try:
            while True:
                os.write(file, bytes(4096))
        except OSError:
            pass
        finally:
            os.close(file)

    def free(self):
        (self.root / "full").unlink()

    def train(self, *flags):
        self.submit(*LONG, *flags)
        self.wait_step(3)
        self.mtctl("checkpoint", "tiny", "--wait")
        saved = int(self.job()["last_checkpoint"]["step"])
        self.wait_step(saved + 20)
        return saved

    def test_release_on_a_full_disk_holds_the_ranks(self):
        saved = self.train()
        ranks = self.rank_processes()
        self.fill()
        for _ in range(2):  # and again: trying once more loses nothing either
            told = self.mtctl("pause", "tiny", "--release", "--wait", check=False)
            self.assertNotEqual(told.returncode, 0)
            self.assertRegex(told.stderr, r"(?i)no space")
            job = self.job()
            self.assertEqual(job["state"], "PAUSED_HELD")
            self.assertEqual(job["goal"], "GOAL_HOLD")
            error = self.done("pause")["error"]
            self.assertEqual(error["reason"], "SAVE_FAILED")
            self.assertRegex(error["message"], r"(?i)no space")
            self.assertEqual(self.rank_processes(), ranks)
            self.assertIn("CheckpointStale", self.conditions())
        held = int(job["ranks"][0]["step"])
        self.assertGreater(held, saved)
        self.free()
        self.mtctl("pause", "tiny", "--release", "--wait")
        job = self.job()
        self.assertEqual(job["state"], "PAUSED_RELEASED")
        self.assertEqual(int(job["last_checkpoint"]["step"]), held, "nothing that was trained is lost")
        self.assertEqual(self.conditions(), [])
        self.mtctl("resume", "tiny", "--wait")
        self.wait_step(held + 3)
        self.assertEqual(int(self.job()["resumed_from_step"]), held)

    def test_discard_gives_the_work_up(self):
        saved = self.train()
        self.fill()
        self.mtctl("pause", "tiny", "--release", "--discard", "--wait")
        job = self.job()
        self.assertEqual(job["state"], "PAUSED_RELEASED")
        self.assertEqual(int(job["last_checkpoint"]["step"]), saved)
        self.assertIn("CheckpointStale", self.conditions())
        self.assertEqual(self.rank_processes(), [])
        self.free()

    def test_a_held_job_goes_on_where_it_stands(self):
        self.train()
        self.fill()
        self.mtctl("pause", "tiny", "--release", "--wait", check=False)
        held = int(self.wait_state("PAUSED_HELD")["ranks"][0]["step"])
        self.mtctl("resume", "tiny", "--wait")
        self.wait_step(held + 10)
        self.assertEqual(shown_epoch(self.job()), "1.1")
        self.free()

    def test_cancel_with_a_checkpoint_says_that_it_was_not_saved(self):
        self.train()
        self.fill()
        told = self.mtctl("cancel", "tiny", "--checkpoint", "--yes", "--wait", check=False)
        self.assertNotEqual(told.returncode, 0)
        self.wait_state("CANCELLED")
        self.assertEqual(self.done("cancel")["error"]["reason"], "SAVE_FAILED")
        self.free()


class ResumeBehindPauseTest(StorageTest):
    """A resume that comes while a pause is under way takes effect after it: the README's own lines."""

    def test_release_and_resume_in_one_line(self):
        self.submit(*LONG)
        self.wait_step(3)
        for _ in range(3):
            step = self.step()
            self.mtctl("pause", "tiny", "--release")
            self.mtctl("resume", "tiny", "--wait")
            self.assertEqual(self.state(), "RUNNING")
            self.wait_step(step + 3)
            self.assertEqual(self.done("pause").get("error"), None)
            self.assertEqual(self.done("resume").get("error"), None)
        self.assertEqual(shown_epoch(self.job()), "1.4")

    def test_hold_and_resume_in_one_line(self):
        self.submit(*LONG)
        self.wait_step(3)
        for _ in range(3):
            step = self.step()
            self.mtctl("pause", "tiny", "--hold")
            self.mtctl("resume", "tiny", "--wait")
            self.assertEqual(self.state(), "RUNNING")
            self.wait_step(step + 3)
        self.assertEqual(shown_epoch(self.job()), "1.1")

    def test_a_resume_behind_a_release_survives_the_coordinator(self):
        self.submit(*LONG)
        self.wait_step(3)
        for pid in self.rank_processes():
            os.kill(pid, signal.SIGSTOP)
        self.mtctl("pause", "tiny", "--release")
        self.wait_state("RELEASING")
        self.mtctl("resume", "tiny")
        self.kill_coordinator()
        self.start_coordinator()
        self.wait_api()
        for pid in self.rank_processes():
            os.kill(pid, signal.SIGCONT)
        self.wait_for("running again", lambda: (j := self.job())["state"] == "RUNNING" and shown_epoch(j) == "2.1")
        self.assertEqual(self.done("resume").get("error"), None)
        self.assertEqual(self.done("pause").get("error"), None)


if __name__ == "__main__":
    unittest.main()
