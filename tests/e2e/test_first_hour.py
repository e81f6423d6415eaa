"""What a newcomer types: the guide and the README as they are written, and a walk with mistakes, with the real programs."""
import csv
import json
import os
import pathlib
import re
import signal
import subprocess
import time
import unittest

from harness import BIN, ClusterTest

ROOT = pathlib.Path(__file__).resolve().parents[2]

# As somebody who has no patience would edit a template: the same commands then take no minutes.
SMALLER = {"layers: 4": "layers: 1", "hidden_size: 128": "hidden_size: 32", "seq_length: 128": "seq_length: 32",
           "train_iters: 1000": "train_iters: 60", "warmup: 50": "warmup: 5"}
SOONER = {"every_iters=100": "every_iters=20", "--step 200": "--step 40"}  # in commands, for a run of so few steps


def blocks(text):
    """The fenced blocks without a language: commands to type."""
    return re.findall(r"(?ms)^```\n(.*?)^```", text)


def edit(path, changes):
    text = path.read_text()
    for before, after in changes.items():
        assert before in text, f"{path}: {before}"
        text = text.replace(before, after)
    path.write_text(text)


class TypedTest(ClusterTest):
    """Commands are typed into bash in the test's folder, which is its home."""

    slots = 2

    def setUp(self):
        super().setUp()
        self.env["PATH"] = f"{BIN}:{self.env['PATH']}"
        self.env["PYTHONDONTWRITEBYTECODE"] = "1"

    def type(self, line, allowed=(0,), timeout=60):
        done = subprocess.run(["bash", "-c", line], env=self.env, cwd=self.dir, capture_output=True, text=True,
                              stdin=subprocess.DEVNULL, timeout=timeout)
        self.assertIn(done.returncode, allowed, f"{line}\n{done.stdout}{done.stderr}")
        return done


class GettingStartedTest(TypedTest):
    def make_data(self):
        self.job_file.unlink()  # the guide begins in an empty folder
        for folder in ("data", "ckpt"):
            (self.dir / folder).rmdir()
        (self.dir / "stories.txt").write_text("\n%\n".join(f"The cat number {i} sat on the mat and slept." for i in range(200)))

    def test_every_command_of_the_guide(self):
        text = (ROOT / "docs/getting-started.md").read_text()
        typed = 0
        for line in "".join(blocks(text)).splitlines():
            for before, after in SOONER.items():
                line = line.replace(before, after)
            said = self.type(line)
            typed += 1
            if line.startswith("mtctl init"):
                edit(self.dir / re.search(r"(\S+\.yaml)", line + " job.yaml")[1], SMALLER)
            if "name=third" in line:  # long enough for what is done to it
                self.type("mtctl cancel third --yes; mtctl submit -f job.yaml --set name=third "
                          "--set training.train_iters=1000000 --set checkpoint.fresh=true")
            if line.startswith("mtctl plot") and "png" not in line:
                self.assertIn("perplexity", said.stdout)
        self.assertGreater(typed, 25)
        rows = list(csv.DictReader((self.dir / "second.csv").read_text().splitlines()))
        self.assertEqual([int(row["step"]) for row in rows], list(range(1, 61)))
        self.assertEqual((self.dir / "loss.png").read_bytes()[:4], b"\x89PNG")
        # What it calls in its sentences exists: its commands are known to mtctl.
        for words in re.findall(r"`mtctl ([a-z]+)", text):
            self.type(f"mtctl {words} --help")


class ReadmeTest(TypedTest):
    # These go on until they are interrupted, or their job ends.
    ENDLESS = ("mtctl logs -f", "mtctl events -f")

    def make_data(self):
        for i in range(60):
            (self.dir / f"{i}.txt").write_text(f"The cat number {i} sat on the mat and slept. " * 5)

    def test_its_commands_are_run_as_written(self):
        readme = (ROOT / "README.md").read_text()
        block = blocks(readme[readme.index("## Use it"):])[0]
        job, typed = "tiny", 0
        for line in block.splitlines():
            if line.startswith("mtctl pause") and job == "tiny":  # what is paused has to live
                job = "long"
                self.submit("--set", "name=long", "--set", "training.train_iters=1000000")
                self.wait_for("steps", lambda: self.job("long").get("last_step", {}).get("step", 0) > 3)
            for command in line.split("#")[0].split(";"):
                command = command.strip().replace("JOB", job)
                if "NODE" in command:
                    command = command.replace("NODE", self.nodes()[0]["name"])
                if command.startswith(self.ENDLESS):
                    self.type(f"timeout -s INT 5 {command}", allowed=(0, 5, 124))
                elif command == "mtctl init":  # what follows is of the tiny job
                    self.type("mv job.yaml tiny.yaml; mtctl init; mv tiny.yaml job.yaml")
                else:
                    self.type(command)
                typed += 1
                if "pause" in command:
                    self.assertEqual(self.job(job)["state"], "PAUSED_HELD" if "hold" in command else "PAUSED_RELEASED")
                if "resume" in command:
                    self.assertEqual(self.job(job)["state"], "RUNNING")
        self.assertEqual(job, "long", "the README pauses a job")
        self.assertEqual(self.job(job)["state"], "CANCELLED")
        self.assertGreater(typed, 25)


class GoingOnTest(TypedTest):
    """What the documents say of a job that ends and is submitted again, each sentence as it is written."""

    slots = 4
    SENTENCES = {
        "README.md": (
            "A job submitted again goes on with its own run, at its newest intact checkpoint, also where it names `checkpoint.load` or "
            "`fresh`; `--restart` begins another.",
            "Beyond its budgets (`resilience.max_restarts`), or where they are 0, the job fails with the cause; submit it again and it "
            "goes on from its last checkpoint."),
        "docs/runbook.md": (
            "Mend the cause, submit the same job file again: it goes on from the newest checkpoint. To begin another run instead: `mtctl "
            "submit -f FILE --restart`; what is there stays.",
            "`mtctl kill JOB` and submit it again; it goes on from its last checkpoint."),
        "docs/getting-started.md": (
            "Submitting a job file again goes on from its run's newest checkpoint too, also where the file names what it began with; where "
            "all its steps are done it ends at once with \"nothing to do\". `mtctl submit -f job.yaml --restart` begins another run "
            "instead.",),
    }

    def complete(self):
        """The complete checkpoints, as (epoch, step), oldest first."""
        return sorted((int(name[-4:]), int(name[5:13])) for name in self.checkpoints() if re.fullmatch(r"step-\d{8}-e\d{4}", name))

    def saved(self, job):
        return self.wait_for("two saves of its own", lambda: len(mine := [c["step"] for c in self.job()["checkpoints"]
                                                                        if c["step"] > job.get("resumed_from_step", 0)]) > 1 and mine)

    def submit_again(self, line="mtctl submit -f job.yaml"):
        self.type(line)
        return self.wait_for("steps", lambda: (j := self.job()).get("first_step") and j)

    def refused_beside(self, live):
        """Another namespace's job that names the directory of this one: it is for when this one has ended."""
        guest = self.type("mtctl submit -n guests -f job.yaml --set checkpoint.directory=default/tiny --wait", allowed=(9,))
        self.assertIn(f"{self.folder()} is held by job {live['uid']}", guest.stderr + guest.stdout)
        self.assertEqual(self.job()["state"], "RUNNING")

    def damaged_list(self):
        """The list of the directory's runs cannot be read: nothing is begun, nothing is gone."""
        path = self.folder() / "run.json"
        whole, there = path.read_text(), self.complete()
        for text in ("{", whole.replace('"version": 1', '"version": 9')):
            path.write_text(text)
            said = self.type("mtctl submit -f job.yaml --wait", allowed=(9,))
            self.assertIn(f"{path}: ", said.stderr + said.stdout)
            self.assertEqual((path.read_text(), self.complete()), (text, there))
        path.write_text(whole)

    def test_its_sentences_are_true(self):
        for name, sentences in self.SENTENCES.items():
            text = " ".join((ROOT / name).read_text().split())
            for sentence in sentences:
                self.assertTrue(sentence in text, f"{name}: {sentence}")
        self.up()
        # The file names how its run begins.
        self.job_file.write_text(self.job_file.read_text().replace("train_iters: 40", "train_iters: 1000000")
                                 + "checkpoint: {fresh: true, every_iters: 20, keep_last: 3}\n")
        begun = self.submit_again()
        self.assertEqual(begun["first_step"]["step"], 1)
        self.saved(begun)
        # A rank fails, and the job with it.
        os.kill(begun["ranks"][0]["pid"], signal.SIGKILL)
        self.wait_for("FAILED", lambda: self.job()["state"] == "FAILED")
        _, step = self.complete()[-1]
        again = self.submit_again()
        self.assertEqual((again["run"]["id"], again["resumed_from_step"]), (begun["run"]["id"], step))
        # It is killed, and the newest checkpoint is damaged.
        self.saved(again)
        self.refused_beside(again)
        self.type("mtctl kill tiny --yes")
        (_, intact), (epoch, damaged) = self.complete()[-2:]
        (self.folder() / f"step-{damaged:08}-e{epoch:04}/manifest.json").write_text("{")
        passed = self.submit_again()
        self.assertEqual((passed["run"]["id"], passed["resumed_from_step"]), (begun["run"]["id"], intact))
        self.type("mtctl kill tiny --yes")
        # Another run, on purpose: what is there stays.
        there = set(self.complete())
        other = self.submit_again("mtctl submit -f job.yaml --restart")
        self.assertEqual((other["first_step"]["step"], other.get("resumed_from_step", 0)), (1, 0))
        self.assertNotEqual(other["run"]["id"], begun["run"]["id"])
        self.saved(other)
        self.type("mtctl kill tiny --yes")
        self.assertLessEqual(there, set(self.complete()))
        # And the file means that one from now on.
        self.damaged_list()
        self.assertEqual(self.submit_again()["run"]["id"], other["run"]["id"])
        self.type("mtctl kill tiny --yes")


class FirstHourTest(TypedTest):
    def steps(self, name):
        return self.job(name).get("last_step", {}).get("step", 0)

    def test_from_nothing_to_a_second_model(self):
        self.up()
        self.job_file.unlink()
        self.type("mtctl init")
        edit(self.dir / "job.yaml", SMALLER | {'split: "969,30,1"': 'split: "8,1,1"'})
        self.assert_three_mistakes_are_named()
        self.type("mtctl validate -f job.yaml")
        self.assertEqual(self.type("mtctl submit -f job.yaml --follow").stderr.splitlines()[-1],
                         "job gpt2-demo SUCCEEDED: trained to step 60")
        # The second model: its watcher leaves, and comes back.
        self.type("mtctl init llama -f llama.yaml --name second")
        edit(self.dir / "llama.yaml", SMALLER | {'split: "969,30,1"': 'split: "8,1,1"', "train_iters: 60": "train_iters: 2500"})
        watcher = self.start_mtctl("submit", "-f", "llama.yaml", "--follow")
        self.wait_for("the job", lambda: self.mtctl("describe", "second", check=False).returncode == 0)
        self.wait_for("steps", lambda: self.steps("second") > 5)
        watcher.send_signal(signal.SIGINT)
        _, said = watcher.communicate(timeout=20)
        self.assertEqual(watcher.returncode, 5)
        self.assertIn("the job runs on. Follow it again: mtctl follow second", said)
        self.assertEqual(self.job("second")["state"], "RUNNING", "the job has to outlive its first watcher")
        followed = self.type("mtctl follow second", timeout=240).stderr
        self.assertEqual(followed.splitlines()[-1], "job second SUCCEEDED: trained to step 2500")
        self.compare_and_export()

    def assert_three_mistakes_are_named(self):
        right = (self.dir / "job.yaml").read_text()
        edit(self.dir / "job.yaml", {"  heads: 4": "  n_head: 4", "decay: cosine": "decay: cosin", "warmup: 5": "warmup: 5x"})
        refused = self.type("mtctl validate -f job.yaml", allowed=(3,))
        self.assertEqual(refused.stdout, "")
        for line in (r"^mtctl: job.yaml: [34] faults$", r"^model\.n_head: .*did you mean (model\.)?heads\?", r"^optimizer\.decay: .*cosine",
                     r"^optimizer\.warmup: .*5x"):
            self.assertRegex(refused.stderr, re.compile(line, re.MULTILINE))
        self.type("mtctl submit -f job.yaml", allowed=(3,))
        (self.dir / "job.yaml").write_text(right)

    def compare_and_export(self):
        drawn = self.type("mtctl plot gpt2-demo --vs second --smooth 10 --width 100").stdout.splitlines()
        self.assertIn("gpt2-demo loss (EMA over 10 steps)", drawn[0])
        self.assertTrue(any("B" in line and "second loss" in line for line in drawn[:3]), drawn[:3])
        self.assertLessEqual(max(map(len, drawn)), 100)
        rows = list(csv.DictReader(self.type("mtctl metrics second --all -o csv").stdout.splitlines()))
        self.assertEqual([int(row["step"]) for row in rows], list(range(1, 2501)))
        self.assertLess(float(rows[-1]["loss"]), float(rows[0]["loss"]) / 2)
        self.type("mtctl plot gpt2-demo --vs second --png both.png")
        decoded = json.loads(self.type(f"python3 {ROOT}/tests/client/decode_png.py both.png").stdout)
        # The curve of the second run goes down: its first columns lie above its last ones.
        rows_at = {int(x): ys for x, ys in decoded["colors"]["d55e00"].items() if decoded["y_axis"]["x"] < int(x)}
        columns = sorted(x for x in rows_at if x <= decoded["x_axis"]["to"])
        self.assertGreater(len(columns), 400)
        self.assertLess(min(rows_at[columns[0]]), min(rows_at[columns[-1]]))


if __name__ == "__main__":
    unittest.main()
