"""Texts of a job that trains on a GPU: beside it on a CPU slot, after it on its GPU, and behind its own evaluations. Skipped where there
is no GPU."""
import json
import unittest

from service_harness import ServiceTest
from test_two_gpus import num_gpus

PROMPTS = ("the cat", "a")
JOB = ("--set", "parallel.data=1", "--set", "training.train_iters=2000000", "--set", "model.hidden_size=256", "--set", "model.heads=4",
       "--set", "training.global_batch_size=2", "--set", "checkpoint.every_iters=400", "--set", "checkpoint.keep_last=1000",
       "--set", "training.eval.every_iters=400", "--set", "training.eval.iters=1", "--set", f"training.eval.prompts=[{', '.join(PROMPTS)}]",
       "--set", "training.eval.prompt_tokens=20", "--set", "training.eval.decode_tokens=31")
ASKED = ("--step", "400", "--tokens", "20", *(word for prompt in PROMPTS for word in ("--prompt", prompt)))


@unittest.skipUnless(num_gpus() >= 1, "needs a GPU")
class GpuReadersTest(ServiceTest):
    gpus = "all"
    autostart = False

    def setUp(self):
        super().setUp()
        self.start_coordinator()
        self.start_worker("node-a", 1)
        self.wait_nodes(1, limit=60)

    def read(self, *flags):
        return json.loads(self.mtctl("-o", "json", "generate", "tiny", *ASKED, *flags).stdout)

    def test_text_beside_a_job_on_a_gpu_after_it_and_of_itself(self):
        self.submit(*JOB, "--set", "placement.device=gpu", "--set", f"parallel.data={num_gpus()}",
                    "--set", f"training.global_batch_size={2 * num_gpus()}")
        self.wait_step(900, limit=120)
        full = self.mtctl("generate", "tiny", check=False)
        self.assert_one_message(full, 1, "nothing was submitted: needs 1 GPU slot", "--wait", "--local",
                                r"--device cpu \(1 of 1 CPU slots is free\)")
        self.assertRegex(full.stderr, r"(?m)^  tiny \(RUNNING\): \d+ GPU slots? on node-a$")
        asked = json.loads(self.mtctl("-o", "json", "generate", "tiny", "--in-job", "--tokens", "20",
                                      *(word for prompt in PROMPTS for word in ("--prompt", prompt))).stdout)
        self.assertEqual([(text["prompt"], text["finish"]) for text in asked["decoded"]["texts"]], [(0, "tokens"), (1, "tokens")])
        self.assertGreaterEqual(int(asked["step"]), 900)
        beside = self.read("--device", "cpu", "--precision", "fp32")
        self.assertEqual(self.job("tiny")["state"], "RUNNING")
        evals = json.loads(self.mtctl("-o", "json", "samples", "tiny", "--step", "400").stdout)["evals"]
        self.mtctl("cancel", "tiny", "--yes")
        self.wait_for("the job's end", lambda: self.job("tiny")["state"] == "CANCELLED", limit=60)
        after = self.read()
        self.assertEqual({one["checkpoint"]["step"] for one in (beside, after)}, {400})
        texts = [one["text"] for one in after["texts"]]
        self.assertEqual(texts, [one["text"] for one in self.read("--local", "--device", "gpu")["texts"]])
        self.assertEqual(texts, [one["text"] for one in evals[0]["samples"]])
        self.assertEqual(len(beside["texts"]), len(texts))
        device = {job["name"]: job["spec"]["placement"]["device"]
                  for job in json.loads(self.mtctl("-o", "json", "get", "jobs").stdout)["jobs"]}
        self.assertEqual(sorted(device.values()), ["cpu", "gpu", "gpu"], device)
