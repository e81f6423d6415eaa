"""A job over two GPUs, and over four, through coordinator, worker and mtctl: held, saved, resumed, cancelled, and each of its ranks
killed; all GPUs of one node, or two nodes on this machine with a GPU each, whose ranks communicate as two machines' do. Skipped where
there are not as many GPUs."""
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import time
import unittest

from control.test_profile import Trace
from service_harness import ServiceTest


def num_gpus():
    try:
        return len(subprocess.run(["nvidia-smi", "-L"], capture_output=True, text=True, timeout=30, check=False).stdout.splitlines())
    except OSError:
        return 0


def gpu_values(what):
    """A text of each GPU that programs see."""
    ids = os.environ.get("CUDA_VISIBLE_DEVICES")
    done = subprocess.run(["nvidia-smi", *(["-i", ids] if ids else []), f"--query-gpu={what}", "--format=csv,noheader,nounits"], capture_output=True, text=True,
                          timeout=30, check=True)
    return done.stdout.split()


def gpu_state(what):
    """A number of each GPU that programs see."""
    return [int(text) for text in gpu_values(what)]


@unittest.skipUnless(num_gpus() >= 2, f"needs two GPUs: this machine has {num_gpus()}")
class TwoGpusTest(ServiceTest):
    gpus = "all"
    autostart = False
    count = 2
    layout = "parallel={data: 2}"

    def setUp(self):
        super().setUp()
        self.start_coordinator()
        self.start_workers()

    def start_workers(self):
        self.start_worker("node-a", 1)
        self.wait_nodes(1, limit=60)

    def submit_long(self, *flags):
        self.submit("--set", "placement.device=gpu", "--set", self.layout, "--set", "training.train_iters=2000000",
                    "--set", "model.hidden_size=512", "--set", "model.heads=8", "--set", "model.seq_length=256",
                    "--set", "training.micro_batch_size=4", "--set", "training.global_batch_size=16",
                    "--set", "checkpoint.every_iters=0", *flags)
        self.wait_step(50, limit=90)

    def test_hold_save_resume_cancel(self):
        self.submit_long()
        job = self.job()
        self.assertEqual(len({rank["gpu"] for rank in job["ranks"]}), self.count, job["ranks"])
        self.mtctl("pause", "tiny", "--hold")
        self.wait_state("PAUSED_HELD")
        held = self.step()
        time.sleep(3)
        self.assertEqual(self.step(), held)
        self.assertLessEqual(max(gpu_state("utilization.gpu")), 5, "held GPUs are idle")
        self.mtctl("resume", "tiny")
        self.wait_step(held + 50)
        self.mtctl("checkpoint", "tiny", timeout=120)
        self.mtctl("pause", "tiny", "--release")
        self.wait_state("PAUSED_RELEASED", limit=90)
        released = self.step()
        self.wait_for("the GPUs' memory", lambda: max(gpu_state("memory.used")) < 600, 30)
        self.mtctl("resume", "tiny")
        self.wait_step(released + 50, limit=90)
        self.mtctl("cancel", "tiny", "--yes")
        self.wait_state("CANCELLED", limit=60)
        self.wait_for("the GPUs' memory", lambda: max(gpu_state("memory.used")) < 600, 30)

    def test_a_profile_has_every_rank_and_no_overlap(self):
        self.submit_long()
        file = self.dir / "trace.json"
        done = self.mtctl("profile", "tiny", "--steps", "20", "-o", str(file))
        first, last = map(int, re.search(rf"steps (\d+) to (\d+) of {self.count} ranks", done.stdout).groups())
        trace = Trace(file)
        self.assertEqual((last - first, trace.other["spans_without_room"]), (19, 0))
        for name in ("compute", "host", "control"):
            self.assertEqual(trace.ranks(name), list(range(self.count)), name)
        for thread, spans in trace.spans.items():
            end = 0.0
            for span in spans:  # events tell times to half a microsecond
                self.assertGreaterEqual(span["ts"], end - 1.1, f"{trace.names[thread]} of rank {thread[0]} overlaps")
                end = span["ts"] + span["dur"]
        self.wait_step(last + 50)
        steps = {row["step"]: row["step_seconds"] for row in self.history()}
        usual = sorted(steps.values())[len(steps) // 2]
        print(json.dumps({"profile": self.layout, "usual_ms": round(1e3 * usual, 2),
                          "around_ms": [round(1e3 * steps[step], 2) for step in range(first - 2, last + 4)],
                          "streams": {name: round(1e3 * trace.seconds(name), 3) for name in sorted(set(trace.names.values()))}}), flush=True)
        self.mtctl("cancel", "tiny", "--yes")
        self.wait_state("CANCELLED", limit=60)

    def test_a_rank_that_is_killed_is_named_and_the_other_leaves(self):
        for trial in range(int(os.environ.get("MT_KILLS", "5"))):
            name = f"kill{trial}"
            self.job_file.write_text(self.job_file.read_text().replace("name: tiny", f"name: {name}"))
            with self.subTest(trial=trial):
                self.submit("--set", f"name={name}", "--set", "placement.device=gpu", "--set", self.layout,
                            "--set", "training.train_iters=2000000", "--set", "checkpoint={directory: none}")
                self.wait_step(20 + 7 * trial, name=name, limit=90)
                victim = trial % self.count
                pid = next(r["pid"] for r in self.job(name)["ranks"] if r.get("rank", 0) == victim)
                os.kill(int(pid), signal.SIGKILL)
                began = time.monotonic()
                self.wait_for("the other ranks' end", lambda: not self.rank_processes(), 15)
                took = time.monotonic() - began
                self.wait_for(f"{name}'s end", lambda n=name: self.job(n)["state"] == "FAILED", 30)
                job = self.job(name)
                print(json.dumps({"kill": trial, "layout": self.layout, "seconds": round(took, 1), "message": job["message"]}), flush=True)
                self.assertLess(took, 10)
                self.assertIn(f"rank {victim}", job["message"])
                self.wait_for("the GPUs' memory", lambda: max(gpu_state("memory.used")) < 600, 30)


class TwoStagesTest(TwoGpusTest):
    layout = "parallel={pipeline: 2, data: 1}"


class TwoTensorRanksTest(TwoGpusTest):
    layout = "parallel={tensor: 2, data: 1}"


@unittest.skipUnless(num_gpus() >= 4, f"needs four GPUs: this machine has {num_gpus()}")
class FourGpusTest(TwoGpusTest):
    """Tensor ranks, stages and replicas by copies at once: the most streams of a GPU that this many ranks can have."""
    count = 4
    layout = "parallel={tensor: 2, pipeline: 2, data: 1}"


class FourReplicasOfStagesTest(FourGpusTest):
    layout = "parallel={pipeline: 2, data: 2}"


@unittest.skipUnless(num_gpus() >= 2 and "MT_LARGE_DATA" in os.environ, "needs two GPUs, and MT_LARGE_DATA: a folder with a data set")
class LargeModelTest(ServiceTest):
    """6.7 billion parameters in two stages, without recomputation: 78 GB a checkpoint, of which the disk needs to hold one. The data
    set dictionary_text_document (scripts/text_run.sh prepare) lies in MT_LARGE_DATA."""
    gpus = "all"
    autostart = False

    def test_hold_save_resume_learn(self):
        self.start_coordinator()
        self.start_worker("node-a", 1)
        self.wait_nodes(1, limit=60)
        for path in pathlib.Path(os.environ["MT_LARGE_DATA"]).glob("dictionary_text_document.*"):
            shutil.copy(path, self.dir / "data")
        self.job_file.write_text("""\
name: large
model: {preset: gpt3-6.7b, hidden_dropout: 0, attention_dropout: 0}
data: {path: [dictionary_text_document], split: "969,30,1", tokenizer: {type: byte}}
parallel: {pipeline: 2}
training: {train_iters: 1000, micro_batch_size: 2, global_batch_size: 16, precision: bf16, seed: 1234, eval: {every_iters: 10, iters: 4}}
optimizer: {lr: 1.2e-4, min_lr: 1.2e-5, warmup: 10, decay: cosine, weight_decay: 0.1, clip_grad: 1.0}
checkpoint: {every_iters: 0}
placement: {device: gpu}
""")
        self.submit()
        before = self.wait_eval(10, 300)
        self.mtctl("pause", "large", "--hold")
        self.wait_state("PAUSED_HELD", "large")
        memory = gpu_state("memory.used")
        self.mtctl("resume", "large")
        self.wait_step(self.step("large") + 2, "large", limit=120)
        began = time.monotonic()
        self.mtctl("pause", "large", "--release", "--wait", timeout=400)
        release_seconds = time.monotonic() - began
        self.assertEqual(self.state("large"), "PAUSED_RELEASED")
        (name,) = self.checkpoints("large")
        stored = sum(path.stat().st_size for path in (self.dir / "ckpt").rglob("*") if path.is_file())
        self.mtctl("resume", "large")
        after = self.wait_eval(int(os.environ.get("MT_LARGE_STEPS", "40")), 600)
        step = int(re.search(r"\d+", name)[0])
        self.assertGreater(step, 10)
        logs = "".join(path.read_text() for path in (self.dir / "logs").rglob("rank-*.log"))
        self.assertRegex(logs, rf"resumed_from={step}\b", "training goes on from what was saved")
        seconds = [row["step_seconds"] for row in self.history("large")]
        print(json.dumps({"eval": [before, after], "memory_used_mib": memory, "checkpoint": name, "bytes": stored,
                          "release_seconds": round(release_seconds, 1), "median_step_seconds": sorted(seconds)[len(seconds) // 2]}), flush=True)
        self.assertLess(after["loss"], before["loss"] - 0.2)
        self.mtctl("cancel", "large", "--yes")
        self.wait_state("CANCELLED", "large", limit=120)

    def wait_eval(self, step, limit):
        """The newest evaluation's step and loss, at this step or behind it."""
        def found():
            job = self.job("large")
            self.assertNotEqual(job["state"], "FAILED", job.get("message"))
            seen = job.get("last_eval", {})
            return {"step": seen["step"], "loss": seen["loss"]} if seen.get("step", 0) >= step else None
        return self.wait_for(f"an evaluation at step {step}", found, limit)


class TwoNodesTest(TwoGpusTest):
    """Two workers on this machine, a GPU each. NCCL tells its ways in the ranks' logs."""

    def start_workers(self):
        self.env["NCCL_DEBUG"] = "INFO"
        for name, gpu in zip(("node-a", "node-b"), gpu_values("uuid")):
            self.start_worker(name, 1, "--gpus", gpu)
        self.wait_nodes(2, limit=60)

    def test_ranks_communicate_as_those_of_two_machines(self):
        self.submit_long()
        ranks = self.job()["ranks"]
        self.assertEqual({rank["node"] for rank in ranks}, {"node-a", "node-b"}, ranks)
        self.mtctl("cancel", "tiny", "--yes")
        self.wait_state("CANCELLED", limit=60)
        logs = "".join(path.read_text() for path in (self.dir / "logs").rglob("rank-*.log"))
        self.assertRegex(logs, r'ranks of different hosts use TCP.*host="?node-[ab]/.* on="?node-[ab]/')
        ways = set(re.findall(r"NCCL INFO Channel.* via ([A-Z0-9]+)", logs))
        self.assertEqual(ways, {"NET"}, "neither the GPUs' own links nor shared memory")
        # Copies are not refused, which would be warned of: nobody looks for them.
        self.assertNotRegex(logs, "GPUs of one host|stages of one host|ranks of one host")


class TwoNodesTwoStagesTest(TwoNodesTest):
    layout = "parallel={pipeline: 2, data: 1}"


if __name__ == "__main__":
    unittest.main()
