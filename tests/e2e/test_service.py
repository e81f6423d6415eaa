"""The verbs of the service on a real run: pause, resume, checkpoint, cancel, kill, update; and what they refuse."""
import json
import re
import shutil
import signal
import subprocess
import time
import unittest

from harness import BIN
from service_harness import ServiceTest

LONG = ("--set", "training.train_iters=1000000", "--set", "checkpoint.every_iters=0")
# Dropout, so that a random state that moved while the ranks were held would show.
DROPOUT = ("--set", "model.hidden_dropout=0.1", "--set", "model.attention_dropout=0.1")
# Ranks go on while a word to them waits for syncs of the coordinator's disk, however long these take.
ENDLESS = (*LONG, "--set", "training.eval.every_iters=250", "--set", "training.eval.iters=2")
STEPS = ("--set", "training.train_iters=1000", "--set", "training.eval.every_iters=250", "--set", "training.eval.iters=2",
         "--set", "checkpoint.every_iters=0")


class PauseTest(ServiceTest):
    def test_hold_stands_still_and_resume_is_bit_equal(self):
        self.submit(*ENDLESS, *DROPOUT)
        self.wait_step(20)
        pids = self.rank_processes()
        self.mtctl("pause", "tiny", "--hold", "--wait", "--reason", "lunch")
        job = self.job()
        self.assertEqual(job["state"], "PAUSED_HELD")
        self.assertEqual({r["state"] for r in job["ranks"]}, {"HELD"})
        held = {r["step"] for r in job["ranks"]}
        self.assertEqual(len(held), 1, "all ranks stop at one step")
        operation = next(o for o in self.operations() if o["verb"] == "pause")
        self.assertLessEqual(operation["step"], operation["word_step"] + 2)
        self.assertEqual({operation["step"]}, held)
        paused = next(e for e in self.events() if e["type"] == "StateChanged" and e["to"] == "PAUSED_HELD")
        self.assertIn(str(operation["step"]), paused["message"])
        self.assertIn(str(operation["word_step"]), paused["message"])
        # Counters come with beats, one a second.
        self.wait_for("the counters of that step", lambda: self.have_counted(operation["step"]))
        self.wait_heartbeats(1)
        before = self.counters()
        self.wait_heartbeats(1)
        self.assertEqual(self.counters(), before, "a counter moved while the ranks were held")
        self.assertEqual(self.rank_processes(), pids)
        self.mtctl("resume", "tiny")
        self.wait_step(operation["step"] + 300)  # an evaluation, too
        self.assert_as_undisturbed(*ENDLESS, *DROPOUT)

    def counters(self):
        """Every counter of training that the worker shows of its ranks."""
        lines = self.http(self.worker_args["node-a"][2]).splitlines()
        names = ("mt_step{", "mt_tokens_total{", "mt_step_duration_seconds_count{")
        return [line for line in lines if line.startswith(names) and 'mt_job="tiny"' in line]

    def have_counted(self, step):
        """Both ranks, this step as their last one."""
        return [float(line.rsplit(" ", 1)[1]) for line in self.counters() if line.startswith("mt_step{")] == [float(step)] * 2

    def test_release_frees_the_slots_and_resume_is_bit_equal(self):
        self.submit(*ENDLESS, *DROPOUT)
        self.wait_step(20)
        self.mtctl("pause", "tiny", "--release", "--wait")
        job = self.job()
        self.assertEqual(job["state"], "PAUSED_RELEASED")
        self.assertEqual(self.rank_processes(), [])
        self.submit("--follow", "--set", "name=other")  # needs both slots
        self.mtctl("resume", "tiny", "--wait")
        self.wait_step(job["last_checkpoint"]["step"] + 300)
        self.assertEqual(self.job()["epoch"] % 2**20, 2)  # the second of its term
        self.assert_as_undisturbed(*ENDLESS, *DROPOUT)

    def test_held_job_releases_and_cancels_with_its_steps(self):
        self.submit(*LONG)
        self.wait_step(10)
        self.mtctl("pause", "tiny", "--hold", "--wait")
        step = self.job()["ranks"][0]["step"]
        self.mtctl("checkpoint", "tiny", "--wait")
        self.mtctl("pause", "tiny", "--release", "--wait")
        self.assertEqual(self.job()["last_checkpoint"]["step"], step)
        self.mtctl("resume", "tiny", "--wait")
        self.wait_step(step + 5)
        self.mtctl("pause", "tiny", "--hold", "--wait")
        step = self.job()["ranks"][0]["step"]
        self.mtctl("cancel", "tiny", "--checkpoint", "--yes")
        job = self.wait_state("CANCELLED")
        self.assertEqual(job["last_checkpoint"]["step"], step)

    def test_verbs_in_a_wrong_state_say_what_is_possible(self):
        self.submit(*LONG)
        self.wait_step(3)
        self.assert_one_message(self.mtctl("resume", "tiny", check=False), 3, "RUNNING", "pause")
        self.assert_one_message(self.mtctl("delete", "tiny", "--yes", check=False), 3, "RUNNING")
        self.mtctl("pause", "tiny", "--hold", "--wait")
        self.assert_one_message(self.mtctl("pause", "tiny", "--hold", check=False), 3, "PAUSED_HELD", "resume")
        self.mtctl("kill", "tiny", "--yes")
        self.wait_state("CANCELLED")
        self.assert_one_message(self.mtctl("pause", "tiny", check=False), 3, "CANCELLED")
        self.assert_one_message(self.mtctl("checkpoint", "tiny", check=False), 3, "CANCELLED")
        self.mtctl("delete", "tiny", "--yes")
        self.assert_one_message(self.mtctl("describe", "tiny", check=False), 3, "no job 'tiny'")

    def test_release_without_a_checkpoint_directory_is_refused(self):
        self.submit(*LONG, "--set", "checkpoint.directory=none")
        self.wait_step(3)
        self.assert_one_message(self.mtctl("pause", "tiny", "--release", check=False), 3, "checkpoint.directory")
        self.assertEqual(self.state(), "RUNNING")
        self.mtctl("cancel", "tiny", "--yes")


class CheckpointTest(ServiceTest):
    def test_checkpoint_now_prints_step_path_bytes_seconds(self):
        self.submit(*LONG)
        self.wait_step(10)
        done = self.mtctl("checkpoint", "tiny", "--wait", "--reason", "before the experiment")
        match = re.search(r"step (\d+)", done.stdout)
        self.assertTrue(match, done.stdout)
        step = int(match.group(1))
        self.assertRegex(done.stdout, r"step-\d{8}-e\d{4}")
        self.assertRegex(done.stdout, r"\d+(\.\d+)? ?[KMG]?i?B")
        self.assertRegex(done.stdout, r"\d+(\.\d+)? ?m?s")
        listed = json.loads(self.mtctl("-o", "json", "get", "checkpoints", "tiny").stdout)["checkpoints"]
        self.assertEqual([c["step"] for c in listed], [step])
        self.assertTrue(listed[0]["digest"])
        folder = self.folder() / listed[0]["path"].rsplit("/", 1)[1]
        self.assertTrue((folder / "manifest.json").exists() or any(folder.iterdir()))
        on_disk = sum(f.stat().st_size for f in folder.iterdir())
        self.assertEqual(on_disk, int(listed[0]["bytes"]))
        self.wait_step(step + 5)  # training went on
        self.mtctl("cancel", "tiny", "--yes")

    def test_prune_is_seen_in_the_list_and_copies_follow(self):
        self.submit(*LONG, "--set", "checkpoint.keep_last=2", "--set", "checkpoint.second=copies/tiny")
        self.wait_step(3)
        for _ in range(4):
            self.mtctl("checkpoint", "tiny", "--wait")
        listed = json.loads(self.mtctl("-o", "json", "get", "checkpoints", "tiny").stdout)["checkpoints"]
        names = sorted(c["path"].rsplit("/", 1)[1] for c in listed)
        self.assertEqual(names, [n for n in self.checkpoints() if n.startswith("step-")])
        self.assertEqual(len(names), 2)
        newest = max(c["step"] for c in listed)
        copy = self.wait_for("the newest is copied", lambda: (c := self.job("tiny").get("second_copy", {})).get("step") == newest and c)
        self.assertGreater(copy["bytes"], 0)
        self.assertEqual(copy["error"], "")
        copies = self.dir / "ckpt/copies/tiny"
        self.assertIn(names[-1], [p.name for p in copies.iterdir()])
        self.mtctl("checkpoint", "verify", str(copies))
        # Storage that fails is said, and stops nothing.
        shutil.rmtree(copies)
        copies.touch()
        self.mtctl("checkpoint", "tiny", "--wait")
        job = self.wait_for("the copy fails", lambda: (j := self.job("tiny")).get("second_copy", {}).get("error") and j)
        self.assertEqual([c["type"] for c in job["conditions"]], ["SecondCopyStale"])
        self.assertEqual(job["second_copy"]["step"], newest)
        self.mtctl("cancel", "tiny", "--yes")

    def test_a_tag_keeps_a_checkpoint_moves_and_is_loaded_by(self):
        def listed():
            answer = json.loads(self.mtctl("-o", "json", "get", "checkpoints", "tiny").stdout)["checkpoints"]
            return {c["step"]: c.get("label", {}).get("tag", "") for c in answer}

        def save(*flags):
            done = json.loads(self.mtctl("checkpoint", "save", "tiny", "--wait", "-o", "json", *flags).stdout)
            self.wait_step(done["checkpoint"]["step"] + 1)
            return done

        self.submit(*LONG, "--set", "checkpoint.keep_last=2")
        self.wait_step(3)
        self.assert_one_message(self.mtctl("checkpoint", "tiny", "--tag", "12", check=False), 3, "taken for a step")
        first = save("--tag", "best", "--meta", "loss=3.2")["checkpoint"]
        self.assertEqual(first["label"], {"tag": "best", "meta": {"loss": "3.2"}})
        for _ in range(3):
            save()
        kept = listed()
        self.assertEqual(len(kept), 3, kept)
        self.assertEqual(kept[first["step"]], "best")
        offline = json.loads(self.mtctl("-o", "json", "checkpoint", "list", first["path"]).stdout)["checkpoints"]
        self.assertEqual(offline[0]["label"], {"tag": "best", "meta": {"loss": "3.2"}})
        second = save("--tag", "best")
        self.assertIn("with the tag best", second["result"])
        step = second["checkpoint"]["step"]
        self.assertEqual([s for s, tag in listed().items() if tag], [step])
        for _ in range(2):
            save()
        self.assertNotIn(first["step"], listed())
        self.assertIn(step, listed())
        self.mtctl("cancel", "tiny", "--yes", "--checkpoint")
        self.submit(*LONG, "--set", "name=other", "--set", "checkpoint.load=default/tiny", "--set", "checkpoint.load_tag=best")
        job = self.wait_for("training", lambda: (j := self.job("other")).get("last_step", {}).get("step", 0) > step and j)
        self.assertEqual(job["resumed_from_step"], step)
        self.mtctl("cancel", "other", "--yes")

    def test_update_takes_effect_while_training(self):
        self.submit(*LONG)
        self.wait_step(5)
        self.assertEqual(self.checkpoints(), [])
        self.mtctl("update", "tiny", "--set", "checkpoint.every_iters=10", "--set", "priority=7", "--label", "team=nlp")
        self.wait_for("a periodic save", lambda: self.job().get("last_checkpoint"))
        job = self.job()
        self.assertEqual(int(job["last_checkpoint"]["step"]) % 10, 0)
        self.assertEqual(int(job["spec"]["priority"]), 7)
        self.assertEqual(job["spec"]["labels"], {"team": "nlp"})
        refused = self.mtctl("update", "tiny", "--set", "training.train_iters=5", "--set", "model.layers=3", check=False)
        self.assert_one_message(refused, 3, "training.train_iters", "model.layers")
        self.assertTrue(any(e["type"] == "Updated" or "checkpoint.every_iters" in e["message"] for e in self.events()))
        self.mtctl("cancel", "tiny", "--yes")


class AgentRestartTest(ServiceTest):
    def test_agent_killed_ten_times_no_step_lost(self):
        self.submit(*ENDLESS, "--set", "resilience.on_agent_exit=continue")
        self.wait_step(5)
        pids = self.rank_processes()
        for _ in range(10):
            self.stop_worker("node-a", signal.SIGKILL)
            time.sleep(0.3)
            self.start_worker("node-a", 2)
            self.wait_nodes(1)
            job = self.job()
            self.assertEqual(job["state"], "RUNNING")
            self.assertEqual(sorted(int(r["pid"]) for r in job["ranks"]), pids, "ranks were disturbed")
        self.wait_step(self.step() + 1)
        self.assert_as_undisturbed(*ENDLESS)

    def test_job_ends_while_its_agent_is_away(self):
        expected = self.run_undisturbed("alone", *STEPS)
        self.submit(*STEPS, "--set", "resilience.on_agent_exit=continue")
        self.wait_step(5)
        self.stop_worker("node-a", signal.SIGKILL)
        self.wait_for("the ranks' end", lambda: not self.rank_processes(), limit=240)
        self.start_worker("node-a", 2)
        self.wait_state("SUCCEEDED")
        self.assertEqual(self.losses(), expected)

    def test_policy_stop_ends_the_ranks_with_their_agent(self):
        self.submit(*LONG, "--set", "resilience.on_agent_exit=stop")
        self.wait_step(5)
        self.stop_worker("node-a", signal.SIGKILL)
        self.wait_for("the ranks' end", lambda: not self.rank_processes(), limit=20)
        self.start_worker("node-a", 2)
        job = self.wait_state("FAILED")
        self.assertIn("agent", job["message"])

    def test_stopped_agent_leaves_ranks_and_stop_ranks_ends_them(self):
        self.submit(*LONG)
        self.wait_step(5)
        self.stop_worker("node-a", signal.SIGTERM)
        self.assertEqual(len(self.rank_processes()), 2, "on_agent_exit: continue is the default")
        done = subprocess.run([str(BIN / "mt-worker"), "stop-ranks", "--state", str(self.dir / "node-a")],
                              capture_output=True, text=True, timeout=60, env=self.env)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.rank_processes(), [])


if __name__ == "__main__":
    unittest.main()
