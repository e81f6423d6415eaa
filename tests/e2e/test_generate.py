"""Text from checkpoints and their scores: beside a job that trains and prunes, through mtctl and mt-rank, on a terminal, and refusals."""
import json
import math
import os
import pathlib
import pty
import re
import select
import signal
import subprocess

from harness import BIN, ClusterTest
from processes import alive_with

SMALL = ("--set", "training.train_iters=20", "--set", "training.precision=fp64", "--set", "model.layers=4",
         "--set", "model.vocab_divisible_by=32", "--set", "placement.threads_per_rank=1", "--set", "checkpoint.every_iters=10")
LAYOUTS = {
    "one": ("--set", "parallel.data=1"),
    "tp2": ("--set", "parallel.data=1", "--set", "parallel.tensor=2"),
    "pp2": ("--set", "parallel.data=1", "--set", "parallel.pipeline=2"),
    "cube": ("--set", "parallel.data=2", "--set", "parallel.tensor=2", "--set", "parallel.pipeline=2",
             "--set", "parallel.zero_stage=1"),
}
TASKS = """tasks:
- {name: text, type: perplexity, file: short.txt, stride: 8}
- {name: pages, type: perplexity, rules: wikitext, file: short.txt}
- {name: words, type: last_word, file: words.jsonl}
- {name: choices, type: multiple_choice, file: choices.jsonl}
"""
SAMPLED = ("--prompt", "the cat", "--prompt", "a", "--samples", "3", "--temperature", "0.9", "--top-p", "0.95", "--tokens", "20")


class GenerateTest(ClusterTest):
    slots = 3  # two train, one reads beside them

    def rank(self, *args, check=True, **options):
        done = subprocess.run([str(BIN / "mt-rank"), *args], env=self.env, capture_output=True, text=True, timeout=120,
                              cwd=self.dir, **({"stdin": subprocess.DEVNULL} | options))
        if check:
            self.assertEqual(done.returncode, 0, f"mt-rank {' '.join(args)}\n{done.stdout}\n{done.stderr}")
        return done

    def train(self, name, *flags):
        self.rank("--standalone", str(self.job_file), "--data-root", "data", "--checkpoint-root", "ckpt", *SMALL, *flags,
                  "--set", f"name={name}")

    def texts(self, *args):
        return [one["text"] for one in json.loads(self.mtctl("-o", "json", "generate", *args).stdout)["texts"]]

    def files(self, folder):
        return sorted((str(p.relative_to(folder)), p.stat().st_mtime_ns) for p in folder.rglob("*"))

    def test_the_text_is_that_of_any_layout(self):
        self.write_tasks()
        said, scored = {}, {}
        for name, flags in LAYOUTS.items():
            self.train(name, *flags)
            before = self.files(self.dir / "ckpt" / name)
            # A folder is no job: no coordinator is asked, and there is none.
            said[name] = self.texts(f"ckpt/{name}", *SAMPLED)
            scored[name] = self.scores("--dir", f"ckpt/{name}")
            self.assertEqual(self.files(self.dir / "ckpt" / name), before, "nothing is written there")
        self.assertEqual(len(set(said["one"])), 6, said["one"])
        self.assertEqual({name: said["one"] for name in LAYOUTS}, said)
        for name, scores in scored.items():
            self.assertEqual(scores.keys(), scored["one"].keys())
            for score, value in scores.items():
                self.assertAlmostEqual(value, scored["one"][score], delta=1e-9 * abs(value), msg=f"{name} {score}")
        self.ways_to_name_a_checkpoint()
        self.what_is_said()
        self.what_is_refused()
        self.what_scores_are(scored["one"])
        self.as_jobs(scored["one"])
        self.on_a_terminal()

    def ways_to_name_a_checkpoint(self):
        one = "ckpt/one"
        newest, older = (json.loads(self.mtctl("-o", "json", "generate", *args).stdout)
                         for args in ((one, "--tokens", "5"), (one, "--step", "10", "--tokens", "5")))
        self.assertEqual((newest["checkpoint"]["step"], older["checkpoint"]["step"]), (20, 10))
        self.assertEqual(newest["precision"], "fp64")
        # One checkpoint's folder, and mt-rank without mtctl.
        self.assertEqual(json.loads(self.rank("--generate", older["checkpoint"]["path"], "--tokens=5", "--json").stdout)["texts"],
                         older["texts"])

    def what_is_said(self):
        done = self.mtctl("generate", "ckpt/one", *SAMPLED)
        texts = self.texts("ckpt/one", *SAMPLED)
        headings = [f"== prompt {p + 1}, sample {s + 1}\n" for p in range(2) for s in range(3)]
        prompts = ["the cat"] * 3 + ["a"] * 3
        # As escapes, where a text has control characters.
        if all(re.fullmatch(r"[ -~\n]*", text) for text in texts):
            self.assertEqual(done.stdout, "".join(h + p + t + "\n" for h, p, t in zip(headings, prompts, texts)))
        self.assertRegex(done.stderr, r"^step-00000020-e0001 of one: \d+ tokens in ")
        stdin = self.rank("--generate", "ckpt/one", "--prompt=-", "--tokens=4", "--json", input="the cat\n", stdin=None)
        self.assertEqual(json.loads(stdin.stdout)["texts"][0]["prompt"], "the cat")
        # The untrained model of fp32 writes bytes of all kinds; only --raw hands them on.
        wild = ("generate", "ckpt/one", "--temperature", "9", "--tokens", "30", "--samples", "4")
        shown = subprocess.run([str(BIN / "mtctl"), *wild], env=self.env, capture_output=True, cwd=self.dir, check=True).stdout
        self.assertFalse(re.search(rb"[\x00-\x08\x0b-\x1f\x7f]", shown), shown)
        self.assertIn(b"\\x", shown)
        raw = subprocess.run([str(BIN / "mtctl"), *wild, "--raw"], env=self.env, capture_output=True, cwd=self.dir, check=True).stdout
        self.assertTrue(re.search(rb"[\x00-\x08\x0b-\x1f\x7f-\xff]", raw), raw)

    def what_is_refused(self):
        def refused(code, *words, args=()):
            self.assert_one_message(self.mtctl("generate", *args, check=False), code, *words)
        refused(3, "nowhere", args=("./nowhere",))
        refused(3, "has 33 tokens, the model has 32 positions", args=("ckpt/one", "--prompt", "x" * 33))
        refused(3, 'no checkpoint "7"', args=("ckpt/one", "--step", "7"))
        refused(3, "tag", args=("ckpt/one", "--tag", "best"))
        refused(3, "top-k", args=("ckpt/one", "--top-k", "5"))
        refused(3, "samples", args=("ckpt/one", "--samples", "2"))
        refused(3, "decimal ids", args=("ckpt/one", "--tokenizer", "null", "--prompt", "hello"))
        refused(3, "unknown", args=("ckpt/one", "--tokenizer", "morse"))
        # A model of another tokenizer: its vocabulary is smaller.
        self.rank("--standalone", str(self.job_file), "--data-root", "data", "--checkpoint-root", "ckpt", *SMALL,
                  "--set", "name=numbers", "--set", "data.mock=true", "--set", "data.path=", "--set", "parallel.data=1",
                  "--set", "data.tokenizer.type=null", "--set", "model.vocab_size=50")
        refused(3, "byte tokenizer has 257 tokens", "numbers.* has 50", args=("ckpt/numbers", "--tokenizer", "byte"))
        self.assertRegex(self.mtctl("generate", "ckpt/numbers", "--prompt", "3 1 4", "--tokens", "5").stdout, r"^3 1 4( \d+){1,5}\n$")

    def write_tasks(self):
        (self.dir / "tasks.yaml").write_text(TASKS)
        (self.dir / "short.txt").write_text(" = Cats = \n \n the cat sat on the mat ; the dog ran , and the cat saw it . \n")
        (self.dir / "words.jsonl").write_text("".join(json.dumps({"text": text}) + "\n" for text in ("the cat sat", "a dog", "of the mat")))
        (self.dir / "choices.jsonl").write_text("".join(json.dumps(line) + "\n" for line in (
            {"context": "the cat", "choices": ["sat", "!?#"], "label": 0},
            {"context": "the", "choices": ["\u4e2d", "dog", "cat"], "label": "1"})))

    def scores(self, *args):
        """task.score -> number."""
        tree = json.loads(self.mtctl("-o", "json", "eval", *args, "-f", "tasks.yaml").stdout)
        self.assertTrue(tree["complete"])
        return {f"{task['name']}.{name}": value for task in tree["tasks"] for name, value in task["scores"].items()}

    def what_scores_are(self, scores):
        """The text's likelihood is that of its tokens one by one, as generate tells it; a table for people; one error a fault."""
        (self.dir / "one.yaml").write_text("tasks: [{name: word, type: last_word, file: one.jsonl}]")
        (self.dir / "one.jsonl").write_text('{"text": "the cat sat"}\n')
        word = json.loads(self.mtctl("-o", "json", "eval", "ckpt/one", "-f", "one.yaml").stdout)["tasks"][0]
        told = json.loads(self.mtctl("-o", "json", "generate", "ckpt/one", "--prompt", "the cat sat", "--tokens", "1", "--logprobs").stdout)
        self.assertAlmostEqual(math.log(word["scores"]["perplexity"]), -sum(told["texts"][0]["logprobs"][6:10]), delta=1e-9)
        self.assertEqual(scores["pages.words"], scores["text.words"])
        self.assertLess(scores["choices.accuracy"], 1.01)
        done = self.mtctl("eval", "ckpt/one", "-f", "tasks.yaml")
        self.assertRegex(done.stdout, r"(?m)^text: perplexity, plain rules, 1 document, \d+ tokens, window 32, stride 8$")
        self.assertRegex(done.stdout, rf"(?m)^  bits_per_byte +{scores['text.bits_per_byte']:.6g}$")
        self.assertRegex(done.stderr, r"^step-00000020-e0001 of one: 4 of 4 tasks in ")
        (self.dir / "lines.jsonl").write_text("no\nline\nparses\n")
        for tasks, *words in (("tasks: []", "one list"), ("tasks: [{name: a, type: last_word, file: lines.jsonl}]", "lines.jsonl: line 1"),
                              ("tasks: [{name: a, type: last_word, file: nowhere}]", "task a", "nowhere"),
                              ("tasks: [{name: a, type: perplexity, file: short.txt, window: 33}]", "window 33", "32 positions")):
            (self.dir / "wrong.yaml").write_text(tasks)
            self.assert_one_message(self.mtctl("eval", "ckpt/one", "-f", "wrong.yaml", check=False), 3, *words)
        self.assert_one_message(self.mtctl("eval", "ckpt/one", "-f", "nowhere.yaml", check=False), 3, "nowhere.yaml")
        self.assert_one_message(self.mtctl("eval", "-f", "tasks.yaml", check=False), 128, "--dir")

    def as_jobs(self, scored):
        """Kinds generate and eval without daemons: what the flags give, below the roots."""
        def job(name, **sections):
            common = {"read": {"checkpoint": "one", "output": "json"}, "placement": {"device": "cpu", "threads_per_rank": 1}}
            (self.dir / f"{name}.yaml").write_text(json.dumps({"name": name} | common | sections))

        def run(name, *args, check=True):
            return self.rank("--standalone", f"{name}.yaml", "--data-root", "data", "--checkpoint-root", "ckpt", *args, check=check)
        job("look", kind="generate", generate={"prompts": ["the cat", "a"], "samples": 3, "temperature": 0.9, "top_p": 0.95, "tokens": 20})
        before = self.files(self.dir / "ckpt")
        told = json.loads(run("look").stdout)
        self.assertEqual([one["text"] for one in told["texts"]], self.texts("ckpt/one", *SAMPLED))
        self.assertEqual(told["checkpoint"]["step"], 20)
        self.assertEqual(run("look", "--set", "read.output=text").stdout, self.mtctl("generate", "ckpt/one", *SAMPLED).stdout)
        self.assertEqual(json.loads(run("look", "--set", "read.step=10").stdout)["checkpoint"]["step"], 10)
        # Of a job "-" is a text as any other, and as often as one likes.
        job("dashes", kind="generate", generate={"prompts": ["-", "-"], "tokens": 3})
        self.assertEqual([one["prompt"] for one in json.loads(run("dashes").stdout)["texts"]], ["-", "-"])
        for name in ("tasks.yaml", "short.txt", "words.jsonl", "choices.jsonl"):
            (self.dir / "data" / name).write_bytes((self.dir / name).read_bytes())
        job("marks", kind="eval", eval={"file": "tasks.yaml"})
        marks = json.loads(run("marks").stdout)
        self.assertTrue(marks["complete"])
        self.assertEqual({f"{task['name']}.{name}": value for task in marks["tasks"] for name, value in task["scores"].items()}, scored)
        self.assertEqual(self.files(self.dir / "ckpt"), before, "nothing is written there")
        memory = json.loads(self.mtctl("-o", "json", "explain", "memory", "-f", "look.yaml", "--checkpoint-root", "ckpt").stdout)["all"]
        self.assertEqual(memory["weights"], 8 * memory["parameters"])
        self.assertEqual(memory["total"], memory["weights"] + memory["activations"])
        self.assert_one_message(self.mtctl("explain", "memory", "-f", "look.yaml", check=False), 3, "--checkpoint-root")
        (self.dir / "data" / "out.yaml").write_text("tasks: [{name: out, type: perplexity, file: ../short.txt}]")
        for name, args, words in (("look", ("--set", "read.checkpoint=../ckpt/one"), "read.checkpoint"),
                                  ("look", ("--set", "read.checkpoint=nowhere"),
                                   "read.checkpoint nowhere below the checkpoint root .*/ckpt: .*placement.node_selector"),
                                  ("look", ("--set", "read.tag=best"), "best"),
                                  ("look", ("--restart",), "--restart: a job that reads a checkpoint begins no run"),
                                  ("look", ("--cache-root", "cache"), "--cache-root: a job that reads a checkpoint"),
                                  ("look", ("--ranks", "2"), "placement.slots: is 2"),
                                  ("look", ("--set", "model.layers=3"), "model.layers: means nothing for kind generate"),
                                  ("marks", ("--set", "eval.file=out.yaml"), "task out: file .* does not lie below the data root")):
            done = run(name, *args, check=False)
            self.assertEqual(done.returncode, 64, done.stderr)
            self.assertRegex(done.stderr, words)
            self.assertEqual(done.stdout, "")

    def on_a_terminal(self):
        """As elsewhere."""
        master, slave = pty.openpty()
        child = subprocess.Popen([str(BIN / "mtctl"), "generate", "ckpt/one", "--prompt", "the", "--tokens", "29", "--temperature=0.5",
                                  "--precision=fp64"],
                                 env=self.env, stdin=slave, stdout=slave, stderr=slave, cwd=self.dir, start_new_session=True)
        os.close(slave)
        said = b""
        while select.select([master], [], [], 120)[0]:
            try:
                part = os.read(master, 4096)
            except OSError:
                break
            if not part:
                break
            said += part
        os.close(master)
        self.assertEqual(child.wait(120), 0, said)
        self.assertTrue(said.startswith(b"the"), said)

    def test_beside_a_job_that_trains_and_prunes(self):
        self.up()
        self.submit("--set", "training.train_iters=1000000", "--set", "checkpoint.every_iters=10", "--set", "checkpoint.keep_last=2")
        self.wait_for("a checkpoint", lambda: self.job().get("last_checkpoint"))
        fence = self.folder() / "FENCE"
        before = fence.read_bytes()
        steps = []
        for _ in range(6):
            said = json.loads(self.mtctl("-o", "json", "generate", "tiny", "--local", "--prompt", "the", "--tokens", "8").stdout)
            steps.append(said["checkpoint"]["step"])
            self.assertEqual(said["checkpoint"]["job"], "tiny")
        self.assertEqual(steps, sorted(steps))
        self.wait_for("a newer one is taken as the job goes on", lambda: json.loads(
            self.mtctl("-o", "json", "generate", "tiny", "--local", "--prompt", "", "--tokens", "1").stdout)
            ["checkpoint"]["step"] > steps[0])
        self.assertEqual(fence.read_bytes(), before)
        self.assertEqual(self.job()["state"], "RUNNING")
        self.mtctl("checkpoint", "tiny", "--tag", "first", "--wait")
        tagged = json.loads(self.mtctl("-o", "json", "generate", "tiny:first", "--local", "--tokens", "3").stdout)
        self.assertEqual(tagged, tagged | {"precision": "fp32"})
        by_flag = json.loads(self.mtctl("-o", "json", "generate", "tiny", "--local", "--tag", "first", "--tokens", "3").stdout)
        self.assertEqual(by_flag["texts"], tagged["texts"])
        # Ctrl-C: to both programs, as a terminal sends it.
        child = subprocess.Popen([str(BIN / "mtctl"), "generate", "tiny", "--local", "--prompt", "the", "--tokens", "29",
                                  "--samples", "4096", "--temperature", "1"],
                                 env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=self.dir,
                                 stdin=subprocess.DEVNULL, start_new_session=True)
        self.addCleanup(child.kill)
        self.assertTrue(child.stdout.read(20))
        os.killpg(child.pid, signal.SIGINT)
        out, err = child.communicate(timeout=30)
        self.assertEqual(child.returncode, 5, err)
        self.assertTrue(out.endswith(b"\n"), out[-80:])
        # To mtctl alone, as a supervisor ends a program: mt-rank goes, too.
        child = subprocess.Popen([str(BIN / "mtctl"), "generate", "tiny", "--local", "--prompt", "the", "--tokens", "29",
                                  "--samples", "4096", "--temperature", "1"],
                                 env=self.env, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=self.dir, stdin=subprocess.DEVNULL)
        self.addCleanup(child.kill)
        self.assertTrue(child.stdout.read(20))
        child.terminate()
        child.communicate(timeout=30)
        self.assertEqual(child.returncode, 5)
        self.assertEqual([pid for pid in alive_with("--generate=") if str(self.dir) in self.command_of(pid)], [])
        self.a_reader_of_the_cluster(tagged)
        self.assertEqual(fence.read_bytes(), before)
        self.assertEqual(self.job()["state"], "RUNNING")
        self.mtctl("cancel", "tiny", "--yes")

    def a_reader_of_the_cluster(self, tagged):
        """Jobs of kinds generate and eval: placed beside the one that trains, read while they write and afterwards, ended by a cancel."""
        look = self.dir / "look.yaml"
        look.write_text(json.dumps({"name": "look", "kind": "generate", "placement": {"device": "cpu", "threads_per_rank": 1},
                                    "read": {"checkpoint": "default/tiny", "tag": "first", "output": "json"}, "generate": {"tokens": 3}}))
        self.mtctl("submit", "-f", str(look), "--wait")
        done = self.job("look")
        self.assertEqual(done["state"], "SUCCEEDED", done)
        self.assertRegex(done["message"], r"^step-\d+-e\d+ of tiny: \d tokens in ")
        written = json.loads(self.mtctl("logs", "look", "--text").stdout)
        self.assertEqual(written["texts"], tagged["texts"])
        self.assert_one_message(self.mtctl("logs", "tiny", "--text", check=False), 3, "kind train")
        # A task file below the data root.
        self.write_tasks()
        for name in ("tasks.yaml", "short.txt", "words.jsonl", "choices.jsonl"):
            (self.dir / "data" / name).write_bytes((self.dir / name).read_bytes())
        self.mtctl("submit", "-f", str(look), "--set", "name=marks", "--set", "kind=eval", "--set", "generate=", "--set",
                   "eval.file=tasks.yaml", "--wait")
        self.assertEqual([task["name"] for task in json.loads(self.mtctl("logs", "marks", "--text").stdout)["tasks"]],
                         ["text", "pages", "words", "choices"])
        # One that writes for minutes, with a model of 3 M parameters in fp64: its text comes while it writes; steps are not its own; a
        # cancel ends it.
        self.train("large", "--set", "parallel.data=1", "--set", "model.hidden_size=256", "--set", "optimizer.warmup=1",
                   "--set", "training.train_iters=2", "--set", "training.global_batch_size=2", "--set", "checkpoint.every_iters=2")
        self.mtctl("submit", "-f", str(look), "--set", "name=long", "--set", "read={checkpoint: large, output: text}", "--set",
                   "generate={samples: 4096, temperature: 1, tokens: 29, prompts: [the]}")
        self.wait_for("it writes", lambda: self.job("long")["state"] == "RUNNING" and
                      "== sample 2\n" in self.mtctl("logs", "long", "--text", check=False).stdout)
        self.assert_one_message(self.mtctl("pause", "long", "--hold", check=False), 3, "is of kind generate")
        follower = subprocess.Popen([str(BIN / "mtctl"), "logs", "-f", "long", "--text"], env=self.env, stdout=subprocess.PIPE,
                                    stdin=subprocess.DEVNULL, cwd=self.dir)
        self.addCleanup(follower.kill)
        self.assertTrue(follower.stdout.read(20).startswith(b"== sample 1\nthe"))
        self.mtctl("cancel", "long", "--yes")
        said = follower.stdout.read()
        self.assertEqual(follower.wait(60), 0)
        follower.stdout.close()
        self.assertIn(b"== sample 2\n", said)
        self.wait_for("its end", lambda: self.job("long")["state"] == "CANCELLED")

    def command_of(self, pid):
        try:
            return (pathlib.Path("/proc") / str(pid) / "cmdline").read_bytes().decode(errors="replace")
        except OSError:
            return ""
