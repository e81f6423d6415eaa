"""A job over two GPUs, through coordinator, worker and mtctl: held, saved, resumed, cancelled, and each of its ranks killed; both GPUs
of one node, or two nodes on this machine with a GPU each, whose ranks communicate as two machines' do. Skipped where there are not two
GPUs."""
import json
import os
import re
import signal
import subprocess
import time
import unittest

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
        self.assertEqual(len({rank["gpu"] for rank in job["ranks"]}), 2, job["ranks"])
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

    def test_a_rank_that_is_killed_is_named_and_the_other_leaves(self):
        for trial in range(int(os.environ.get("MT_KILLS", "5"))):
            name = f"kill{trial}"
            self.job_file.write_text(self.job_file.read_text().replace("name: tiny", f"name: {name}"))
            with self.subTest(trial=trial):
                self.submit("--set", f"name={name}", "--set", "placement.device=gpu", "--set", self.layout,
                            "--set", "training.train_iters=2000000", "--set", "checkpoint={directory: none}")
                self.wait_step(20 + 7 * trial, name=name, limit=90)
                victim = trial % 2
                pid = next(r["pid"] for r in self.job(name)["ranks"] if r.get("rank", 0) == victim)
                os.kill(int(pid), signal.SIGKILL)
                began = time.monotonic()
                self.wait_for("the other rank's end", lambda: not self.rank_processes(), 15)
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
