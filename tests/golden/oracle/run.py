"""A run of the real program: its data set, its checkpoint after every step, what it reported."""
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import numpy as np

import checkpoint
import sample_order

BIN = pathlib.Path(os.environ["MT_BIN"])
THREADS = int(os.environ.get("MT_TEST_THREADS", "1"))  # of a rank, as in tests/compute_threads.h


def _documents(vocab_size):
    """Documents of one to three sequences of 1 to 60 tokens, some without any sequence."""
    random = np.random.RandomState(77)
    return [[random.randint(0, vocab_size, random.randint(1, 61)).astype(np.uint16)
             for _ in range(random.randint(0, 4))] for _ in range(28)]


def _ended(documents, eod):
    """The same, each sequence with the token that ends documents; within it lies a random one now and then."""
    for document in documents:
        for sequence in document:
            sequence[-1] = eod
    return documents


class Run:
    """Trains `job` in a folder of its own, which close() removes."""

    def __init__(self, job):
        self.job = job
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="mt-oracle-"))
        (self.folder / "data").mkdir()
        self.prefix = self.folder / "data" / job["data"]["path"][0]
        documents = _documents(job["model"]["vocab_size"])
        if job["data"].get("reset_positions"):
            documents = _ended(documents, job["model"]["vocab_size"] - 1)
        sample_order.write_data_set(self.prefix, documents)
        self.steps, self.evaluations = {}, []
        try:
            self._train()
        except BaseException:
            self.close()
            raise

    def close(self):
        shutil.rmtree(self.folder, ignore_errors=True)

    def _train(self):
        iters = self.job["training"]["train_iters"]
        whole = self.job | {
            "checkpoint": {"every_iters": 1, "keep_last": iters + 1},
            "placement": {"device": "cpu", "threads_per_rank": THREADS}}
        file = self.folder / "job.yaml"
        file.write_text(json.dumps(whole))  # JSON is YAML
        done = subprocess.run(
            [str(BIN / "mt-rank"), "--standalone", str(file), "--data-root", str(self.folder / "data"),
             "--checkpoint-root", str(self.folder / "checkpoints"),
             "--metrics-file", str(self.folder / "metrics.jsonl")],
            capture_output=True, text=True, timeout=240, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, f"mt-rank: {done.returncode}\n{done.stdout}\n{done.stderr}"
        for line in (self.folder / "metrics.jsonl").read_text().splitlines():
            record = json.loads(line)
            if record["kind"] == "step":
                self.steps[record["step"]] = record
            elif record["kind"] == "eval":
                self.evaluations.append(record)

    def checkpoint(self, step):
        return checkpoint.find(self.folder / "checkpoints" / self.job["name"], step)

    def generate(self, step, prompts, *flags):
        """What mt-rank writes of the checkpoint of this step; prompts are lists of ids."""
        done = subprocess.run(
            [str(BIN / "mt-rank"), "--generate", str(self.folder / "checkpoints" / self.job["name"]), f"--step={step}",
             "--json", *(f"--prompt={' '.join(map(str, ids))}" for ids in prompts), *flags],
            capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, f"mt-rank: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return json.loads(done.stdout)

    def scores(self, step, tasks, files):
        """What mt-rank finds of the checkpoint of this step; `files`: name -> text, of the tasks."""
        for name, text in files.items():
            (self.folder / name).write_text(text)
        (self.folder / "tasks.yaml").write_text(json.dumps({"tasks": tasks}))  # JSON is YAML
        done = subprocess.run(
            [str(BIN / "mt-rank"), "--eval", str(self.folder / "checkpoints" / self.job["name"]), f"--step={step}",
             "--json", "--file", str(self.folder / "tasks.yaml")],
            capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL)
        assert done.returncode == 0, f"mt-rank: {done.returncode}\n{done.stdout}\n{done.stderr}"
        return json.loads(done.stdout)
