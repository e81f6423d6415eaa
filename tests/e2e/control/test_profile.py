"""What running jobs are asked for: traces by `mtctl profile` and texts by `generate --in-job`, through coordinator, agent and ranks;
and `mt-rank --trace` beside a benchmark's report."""
import json
import re
import subprocess
from collections import defaultdict

from harness import BIN, ClusterTest

LAYOUT = ("--set", "parallel.pipeline=2", "--set", "parallel.data=2", "--set", "model.tie_embeddings=true")
MOCK = ("--set", "data.path=null", "--set", "data.split=null", "--set", "data.tokenizer=null", "--set", "data.mock=true",
        "--set", "model.vocab_size=300")


class Trace:
    """A Chrome trace as read from its file: threads by (process, thread), their names, and their spans in order."""

    def __init__(self, path):
        self.json = json.loads(path.read_text())
        self.other = self.json["otherData"]
        self.names, self.spans = {}, defaultdict(list)
        for event in self.json["traceEvents"]:
            thread = (event["pid"], event["tid"])
            if event["ph"] == "M" and event["name"] == "thread_name":
                self.names[thread] = event["args"]["name"]
            elif event["ph"] == "X":
                self.spans[thread].append(event)

    def ranks(self, name):
        return sorted(pid for (pid, _), found in self.names.items() if found == name)

    def seconds(self, name):
        """Of all spans of the threads of this name."""
        return sum(span["dur"] for thread, found in self.names.items() if found == name for span in self.spans[thread]) / 1e6


class ProfileTest(ClusterTest):
    slots = 4

    def assert_sound(self, trace, ranks, first, last):
        self.assertEqual((trace.other["ranks"], trace.other["first_step"], trace.other["last_step"]), (ranks, first, last))
        self.assertEqual(trace.other["spans_without_room"], 0)
        for name in ("compute", "host"):
            self.assertEqual(trace.ranks(name), list(range(ranks)), name)
        for thread, spans in trace.spans.items():
            end = 0.0
            for span in spans:
                self.assertGreaterEqual(span["ts"], end - 0.0015, f"{trace.names[thread]} of rank {thread[0]} overlaps")
                end = span["ts"] + span["dur"]
        for thread, name in trace.names.items():
            if name == "compute":
                steps = {span["args"]["step"] for span in trace.spans[thread]}
                self.assertLessEqual(set(range(first, last + 1)), steps, f"rank {thread[0]}")

    def test_a_running_job_is_traced_on_every_rank(self):
        self.up()
        self.submit(*LAYOUT, "--set", "training.train_iters=100000", "--set", "checkpoint.directory=none",
                    "--set", "training.eval.decode_tokens=16")
        self.mtctl("wait", "tiny", "--for", "state=RUNNING", "--timeout", "60")
        file = self.dir / "trace.json"
        done = self.mtctl("profile", "tiny", "--steps", "3", "-o", str(file))
        first, last = map(int, re.search(r"steps (\d+) to (\d+) of 4 ranks", done.stdout).groups())
        self.assertEqual(last - first, 2)
        trace = Trace(file)
        self.assert_sound(trace, 4, first, last)
        for name, ranks in {"exposed": [0, 1, 2, 3], "pp-act 0>1": [0, 1], "pp-grad 1>0": [2, 3], "tied": [0, 1, 2, 3],
                            "dp-reduce": [0, 1, 2, 3], "control": [0, 1, 2, 3]}.items():
            self.assertEqual(trace.ranks(name), ranks, name)
            self.assertGreater(trace.seconds(name), 0, name)

        # The phases of rank 0 against the steps that the service has in its history. The last one comes after the profile's end: what a
        # step came to is read when the next one has run.
        def told():
            lines = self.mtctl("metrics", "tiny", "--steps", f"{first}:{last}", "-o", "jsonl", "--points", "2500").stdout.splitlines()
            return len(lines) == last - first + 1 and [json.loads(line) for line in lines]

        steps = self.wait_for("the traced steps in the history", told)
        self.assertEqual([step["step"] for step in steps], list(range(first, last + 1)))
        [compute] = [thread for thread, name in trace.names.items() if name == "compute" and thread[0] == 0]
        for phase in ("forward", "backward", "optimizer"):
            traced = sum(span["dur"] for span in trace.spans[compute] if span["name"] == phase) / 1e6
            recorded = sum(step[f"phase_seconds/{phase}"] for step in steps)
            self.assertAlmostEqual(traced, recorded, delta=0.01 * recorded + 1e-5, msg=phase)
        # The operation names it, and its trace can be had again until the next one.
        [operation] = json.loads(self.mtctl("get", "operations", "tiny", "-o", "json").stdout)["operations"]
        self.assertEqual((operation["verb"], operation["profile"]["first_step"]), ("profile", first))
        again = self.dir / "again.json"
        self.mtctl("profile", operation["name"], "-o", str(again))
        self.assertEqual(again.read_text(), file.read_text())
        self.mtctl("profile", "tiny", "--steps", "1", "-o", str(file))
        self.assert_one_message(self.mtctl("profile", operation["name"], "-o", str(again), check=False), 6, "a later profile")
        self.assertEqual(self.job()["state"], "RUNNING")
        self.it_writes_what_it_is_asked_for()
        self.bad_input(file)

    def it_writes_what_it_is_asked_for(self):
        """Of the same job: two stages write together, the other replica waits, and all train on."""
        asked = ("generate", "tiny", "--in-job", "--prompt", "the cat", "--prompt", "a", "--tokens", "5")
        told = self.mtctl(*asked)
        self.assertRegex(told.stdout, r"(?s)\A== prompt 1\nthe cat.*\n== prompt 2\na.*\n\Z")
        step = int(re.search(r"(?m)^tiny: 2 texts after step (\d+)$", told.stderr)[1])
        self.wait_for("a later step", lambda: self.job()["last_step"]["step"] > step + 1)
        operation = json.loads(self.mtctl("-o", "json", *asked).stdout)
        self.assertEqual([text["prompt"] for text in operation["decoded"]["texts"]], [0, 1])
        self.assertGreater(operation["step"], step)
        self.assert_one_message(self.mtctl("generate", "tiny", "--in-job", "--prompt", "x" * 40, check=False), 3,
                                "prompt 1 has 40 tokens.*texts of 16.*decode_tokens")

    def bad_input(self, file):
        """Of the job that trains: what cannot be traced is said in words, and nothing of the job changes."""
        self.assert_one_message(self.mtctl("profile", "tiny", "-o", str(self.dir / "none" / "t.json"), check=False), 6, "no such file")
        self.assert_one_message(self.mtctl("profile", "tiny", "--steps", "21", "-o", str(file), check=False), 128, "steps")
        self.assert_one_message(self.mtctl("profile", "nobody", "-o", str(file), check=False), 3, "nobody")
        self.mtctl("pause", "tiny", "--hold", "--wait")
        self.assert_one_message(self.mtctl("profile", "tiny", "-o", str(file), check=False), 3, "PAUSED_HELD.*held")
        self.assert_one_message(self.mtctl("generate", "tiny", "--in-job", check=False), 3, "PAUSED_HELD.*held")
        self.mtctl("resume", "tiny", "--wait")
        self.mtctl("kill", "tiny", "--yes", "--wait")
        self.assert_one_message(self.mtctl("profile", "tiny", "-o", str(file), check=False), 3, "no step runs")

    def test_a_job_that_ends_meanwhile_has_a_shorter_trace(self):
        self.up()
        self.submit(*LAYOUT, "--set", "training.train_iters=60", "--set", "checkpoint.directory=none")
        # Its end may come before anybody has seen it run.
        self.wait_for("a job that runs, or has ended", lambda: self.job()["state"] in ("RUNNING", "SUCCEEDED"))
        file = self.dir / "trace.json"
        done = self.mtctl("profile", "tiny", "--steps", "20", "-o", str(file), check=False)
        self.mtctl("wait", "tiny", "--timeout", "60")
        if done.returncode == 0:
            trace = Trace(file)
            self.assert_sound(trace, 4, trace.other["first_step"], trace.other["last_step"])
            self.assertLessEqual(trace.other["last_step"], 60)
        else:
            self.assertRegex(done.stderr, "no step runs|nothing was traced|the job is SUCCEEDED|SUCCEEDED")

    def test_a_benchmark_alone_with_its_trace(self):
        file = self.dir / "trace.json"
        command = [str(BIN / "mt-rank"), "--standalone", str(self.job_file), "--bench", "--set", "bench.steps=4", "--set",
                   "bench.warmup=2", *LAYOUT, *MOCK]
        done = subprocess.run([*command, "--trace", str(file)], capture_output=True, text=True, timeout=120, cwd=self.dir)
        self.assertEqual(done.returncode, 0, done.stderr)
        trace = Trace(file)
        self.assert_sound(trace, 4, 3, 5)
        # Group, ranks, calls, and milliseconds in all, hidden and exposed, as printed.
        row = r"^ +(\S+(?: \d+>\d+)?) +(\d+) +\d+ +([\d.]+) +([\d.]+) +([\d.]+)  [\d.]+ on rank \d+$"
        groups = {found[0]: tuple(map(float, found[1:])) for found in re.findall(row, done.stdout, re.MULTILINE)}
        self.assertLessEqual({"pp-act 0>1", "pp-grad 1>0", "tied", "dp-reduce", "control"}, set(groups), done.stdout)
        for name, (ranks, all_ms, hidden_ms, exposed_ms) in groups.items():
            self.assertEqual(len(trace.ranks(name)), ranks, name)
            per_step_ms = 1e3 * trace.seconds(name) / 3 / ranks
            self.assertAlmostEqual(per_step_ms, all_ms, delta=0.01 * all_ms + 6e-4, msg=name)
            self.assertAlmostEqual(hidden_ms + exposed_ms, all_ms, delta=2e-3, msg=name)
        self.assertRegex(done.stdout, r"\n +group +ranks +calls +ms +hidden +exposed")
        self.assertRegex(done.stdout, r"\nbubble +[\d.]+ %.*; [\d.]+ % by formula")
        # A file that cannot be written is told before anything runs.
        for bad, word in ((str(self.dir), "is a folder"), (str(self.dir / "none" / "t.json"), "cannot be written")):
            refused = subprocess.run([*command, "--trace", bad], capture_output=True, text=True, timeout=60, cwd=self.dir)
            self.assertNotEqual(refused.returncode, 0)
            self.assertRegex(refused.stderr, word)
