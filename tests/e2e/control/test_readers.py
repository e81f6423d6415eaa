"""`mtctl generate JOB` through coordinator, worker and rank: the text of the local way, a full cluster, clients that leave."""
import json
import re
import signal

from harness import ClusterTest

# 3 M parameters in fp64: 4,096 texts of 120 tokens take minutes on any machine, longer than what is done meanwhile on a busy one.
LARGE = ("--set", "training.train_iters=2", "--set", "training.precision=fp64", "--set", "model.layers=4",
         "--set", "model.vocab_divisible_by=32", "--set", "model.hidden_size=256", "--set", "model.seq_length=128",
         "--set", "optimizer.warmup=1", "--set", "parallel.data=1", "--set", "training.global_batch_size=2",
         "--set", "checkpoint.every_iters=2", "--set", "placement.threads_per_rank=1")
FEW = ("--prompt", "the cat", "--prompt", "a", "--samples", "2", "--temperature", "0.9", "--top-p", "0.95", "--tokens", "12",
       "--threads", "1")
LONG = ("--prompt", "the", "--samples", "4096", "--temperature", "1", "--tokens", "120", "--threads", "1")


class ReadersTest(ClusterTest):
    slots = 3

    def readers(self):
        jobs = json.loads(self.mtctl("-o", "json", "get", "jobs").stdout)["jobs"]
        return {job["name"]: job["state"] for job in jobs if job["name"].startswith(("generate-", "eval-"))}

    def start(self, *flags):
        """A reader that writes for minutes, and whose text has begun to come; the client and the job's name."""
        before = self.readers()
        client = self.start_mtctl("generate", "tiny", *LONG, *flags)
        self.assertEqual(client.stdout.read(15), "== sample 1\nthe")
        new = set(self.readers()) - set(before)
        self.assertEqual(len(new), 1, new)
        return client, new.pop()

    def test_readers_and_those_who_asked_for_them(self):
        self.up()
        self.submit(*LARGE, "--wait")
        stays, detached = self.start("--detach")
        goes, lost = self.start()
        stops, interrupted = self.start()
        # The cluster is full.
        full = self.mtctl("generate", "tiny", check=False)
        self.assert_one_message(full, 1, "nothing was submitted: needs 1 CPU slot", "--wait", "--local")
        for name in (detached, lost, interrupted):
            self.assertRegex(full.stderr, rf"(?m)^  {name} \(RUNNING\): 1 CPU slot on \S+$")
        self.assertNotIn("--device", full.stderr)
        self.assertEqual(set(self.readers()), {detached, lost, interrupted})
        # Two terminals close, of the third one a key is pressed.
        for client in (stays, goes):
            client.kill()
            client.communicate()
        stops.send_signal(signal.SIGINT)
        said, err = stops.communicate(timeout=60)
        self.assertEqual(stops.returncode, 5, err)
        self.assertTrue(not said or said.endswith("\n"), said[-80:])
        self.wait_for("what was interrupted ends", lambda: self.readers()[interrupted] == "CANCELLED")
        self.the_text_is_that_of_the_local_way()
        self.scores_are_those_of_the_local_way()
        self.one_that_is_detached_comes_to_its_end()
        self.wait_for("whose client is lost ends", lambda: self.readers()[lost] == "CANCELLED")
        self.assertRegex(self.job(lost)["message"], "its client was not heard for 10 s")
        # It goes on, or has come to its end on a machine that is fast.
        self.assertIn(self.readers()[detached], ("RUNNING", "SUCCEEDED"))
        self.mtctl("cancel", detached, "--yes", check=False)

    def the_text_is_that_of_the_local_way(self):
        here, there = (json.loads(self.mtctl("-o", "json", "generate", "tiny", *FEW, *flags).stdout) for flags in (("--local",), ()))
        self.assertEqual(here["texts"], there["texts"])
        self.assertEqual(len(there["texts"]), 4)
        for part in ("job", "step", "epoch"):
            self.assertEqual(here["checkpoint"][part], there["checkpoint"][part])
        told = self.mtctl("generate", "tiny:2", *FEW)
        self.assertEqual(told.stdout, self.mtctl("generate", "tiny", "--local", *FEW).stdout)
        self.assertRegex(told.stderr, r"(?m)^step-00000002-e\S+ of tiny: \d+ tokens in ")

    def scores_are_those_of_the_local_way(self):
        tasks = self.dir / "data" / "tasks.yaml"
        tasks.write_text("tasks: [{name: word, type: last_word, file: one.jsonl}]")
        (self.dir / "data" / "one.jsonl").write_text('{"text": "the cat sat"}\n')
        here, there = (json.loads(self.mtctl("-o", "json", "eval", "tiny", "-f", str(tasks), "--threads", "1", *flags).stdout)["tasks"]
                       for flags in (("--local",), ()))
        self.assertEqual([task["scores"] for task in here], [task["scores"] for task in there])

    def one_that_is_detached_comes_to_its_end(self):
        before = self.readers()
        client = self.start_mtctl("generate", "tiny", "--prompt", "the", "--samples", "8", "--temperature", "1", "--tokens", "20",
                                  "--detach")
        self.assertTrue(client.stdout.read(4))
        client.kill()
        client.communicate()
        name, = set(self.readers()) - set(before)
        self.wait_for("its end", lambda: self.readers()[name] == "SUCCEEDED")
        self.assertEqual(re.findall(r"(?m)^== sample (\d)$", self.mtctl("logs", name, "--text").stdout), list("12345678"))
