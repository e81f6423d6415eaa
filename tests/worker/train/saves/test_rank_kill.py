"""mt-rank gets SIGKILL as it begins an operation of its saves, by name; the next one goes on from the newest checkpoint that was told,
or a newer one, to the bit, and finds nothing torn. Two names in the short form; every name with MT_LONG_TESTS.
"""
import collections
import json
import os
import pathlib
import shutil
import signal
import subprocess
import tempfile
import unittest

BIN = pathlib.Path(os.environ["MT_BIN"])

JOB = """
name: tiny
model: {layers: 2, hidden_size: 64, heads: 2, seq_length: 64, vocab_size: 300, hidden_dropout: 0.1}
data: {mock: true}
training: {train_iters: 24, micro_batch_size: 4, global_batch_size: 32, eval: {every_iters: 8, iters: 1}}
optimizer: {lr: 1.0e-3, warmup: 5}
checkpoint: {every_iters: 4, keep_last: 2, keep_best: 1, async_save: true}
placement: {device: cpu, threads_per_rank: 1}
"""


class RankKillTest(unittest.TestCase):
    def setUp(self):
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix=f"mt-rank-kill-{os.getpid()}-", dir=memory)).resolve()
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        (self.dir / "job.yaml").write_text(JOB)

    def run_rank(self, disk, name, **env):
        """Exit code of a run over `disk`, and what its metrics file has, by kind."""
        metrics = self.dir / f"{name}.jsonl"
        metrics.unlink(missing_ok=True)
        done = subprocess.run(
            [str(BIN / "mt-rank"), "--standalone", str(self.dir / "job.yaml"), "--checkpoint-root", str(disk / "ckpts"),
             "--metrics-file", str(metrics)],
            env=dict(os.environ, **env), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, timeout=120)
        self.said = done.stderr.decode(errors="replace")[-2000:]
        rows = collections.defaultdict(list)
        for line in metrics.read_text().splitlines() if metrics.exists() else []:
            try:
                row = json.loads(line)
            except json.JSONDecodeError:
                continue  # the last line of a process that was killed
            rows[row["kind"]].append(row)
        return done.returncode, rows

    def new_disk(self):
        disk = self.dir / "disk"
        shutil.rmtree(disk, ignore_errors=True)
        disk.mkdir()
        return disk

    def preload(self, disk, **more):
        return dict(more, LD_PRELOAD=os.environ["MT_CRASH_LIBRARY"], MT_CRASH_ROOT=str(disk))

    def kill_at(self, name, turn):
        """Whether a run came to this operation and was killed there; what it had told."""
        code, rows = self.run_rank(self.new_disk(), "killed", **self.preload(self.dir / "disk", MT_CRASH_AT=f"{turn} {name}"))
        self.assertIn(code, (0, -signal.SIGKILL), self.said)
        return code != 0, rows

    def check_going_on(self, told, straight):
        directory = self.dir / "disk/ckpts/tiny"
        if [path for path in directory.glob("step-*") if path.suffix != ".tmp"]:
            verified = subprocess.run([str(BIN / "mtctl"), "checkpoint", "verify", str(directory)], capture_output=True, text=True)
            self.assertEqual(verified.returncode, 0, verified.stdout + verified.stderr)
        code, rows = self.run_rank(self.dir / "disk", "next")
        self.assertEqual(code, 0, self.said)
        begin = rows["run"][0]["resumed_from_step"]
        self.assertGreaterEqual(begin, max((row["step"] for row in told["checkpoint"]), default=0))
        self.assertEqual([row["step"] for row in rows["step"]], list(range(begin + 1, 25)))
        for row in rows["step"]:
            want = straight[row["step"] - 1]
            self.assertEqual((row["loss"], row["grad_norm"]), (want["loss"], want["grad_norm"]), row["step"])
        self.assertEqual([path.name for path in directory.glob("*.tmp")], [])

    def test_the_next_rank_goes_on_to_the_bit(self):
        names = self.dir / "names"
        code, calm = self.run_rank(self.new_disk(), "calm", **self.preload(self.dir / "disk", MT_CRASH_NAMES=str(names)))
        self.assertEqual(code, 0, self.said)
        self.assertEqual(len(calm["step"]), 24)
        turns = collections.Counter(names.read_text().splitlines())
        wanted = sorted(name for name in turns if not name.startswith(("open ", "read ")))
        self.assertGreaterEqual(len(wanted), 24, wanted)
        if not os.environ.get("MT_LONG_TESTS"):
            wanted = [name for name in wanted if name in ("rename step-#-e#", "sync rank-#.safetensors")]
            self.assertEqual(len(wanted), 2, sorted(turns))
        for name in wanted:
            with self.subTest(name):
                # A save that is left out, since the one before is not over, may leave a run without the middle turn.
                killed, told = self.kill_at(name, (turns[name] + 1) // 2)
                if not killed:
                    killed, told = self.kill_at(name, 1)
                self.assertTrue(killed)
                self.check_going_on(told, calm["step"])


if __name__ == "__main__":
    unittest.main()
