"""Benchmarks: a job file through the service and by a rank alone, what the report holds, what is refused."""
import json
import re
import statistics
import subprocess

from harness import BIN, ClusterTest

MOCK = ("--set", "data.path=null", "--set", "data.split=null", "--set", "data.tokenizer=null", "--set", "data.mock=true",
        "--set", "model.vocab_size=300")


class BenchTest(ClusterTest):
    def bench(self, *args, check=True):
        return self.mtctl("bench", "-f", str(self.job_file), *args, check=check)

    def test_a_training_job_as_a_benchmark_through_the_service(self):
        self.up()
        report = json.loads(self.bench("--warmup", "4", "--steps", "20", "-o", "json").stdout)
        self.assertEqual((report["steps"], report["warmup_steps"], report["slots"]), (20, 4, 2))
        self.assertEqual(report["tokens_per_step"], 8 * 32)
        job = self.job("tiny-bench")  # no run of the job that it measures
        self.assertEqual(job["state"], "SUCCEEDED")
        self.assertEqual(job["bench"], report)
        self.assertEqual(job["spec"]["kind"], "bench")
        self.assertEqual(self.checkpoints(), [], "a benchmark saves nothing")
        axes = {axis["axis"]: axis for axis in report["communication"]}
        self.assertEqual([name for name, axis in axes.items() if axis["calls"] > 0], ["dp", "world"])
        for name, axis in axes.items():
            self.assertAlmostEqual(axis["hidden_seconds"] + axis["exposed_seconds"], axis["seconds"], delta=1e-9, msg=name)
        # The report against the steps that the service has in its history.
        lines = self.mtctl("metrics", "tiny-bench", "--steps", "1:24", "-o", "jsonl", "--points", "2500").stdout.splitlines()
        steps = [json.loads(line) for line in lines]
        self.assertEqual([s["step"] for s in steps], list(range(1, 25)))
        measured = [s["step_seconds"] for s in steps[4:]]
        self.assertAlmostEqual(report["median_step_seconds"], statistics.median(measured), delta=1e-6)
        self.assertAlmostEqual(report["p95_step_seconds"], sorted(measured)[18], delta=1e-6)
        described = self.mtctl("describe", "tiny-bench").stdout
        self.assertRegex(described, r"Benchmark:\s+%.3f ms/step" % (1e3 * report["median_step_seconds"]))

    def test_mock_tokens_and_a_report_for_people(self):
        self.up()
        done = self.bench("--steps", "5", "--warmup", "2", "--kernels", "--set", "parallel.data=1", *MOCK)
        self.assertRegex(done.stdout, r"\nstep +median [\d.]+ ms, p95 [\d.]+ ms")
        self.assertRegex(done.stdout, r"\nkernels +step / sum of its own kernels [\d.]+")
        self.assertRegex(done.stdout, r"attention\.Grad")

    def test_a_rank_alone_prints_the_same_report(self):
        metrics = self.dir / "steps.jsonl"
        done = subprocess.run([str(BIN / "mt-rank"), "--standalone", str(self.job_file), "--bench", "--set", "bench.steps=6",
                               "--set", "bench.warmup=2", "--metrics-file", str(metrics), *MOCK],
                              capture_output=True, text=True, timeout=120, cwd=self.dir)
        self.assertEqual(done.returncode, 0, done.stderr)
        lines = [json.loads(line) for line in metrics.read_text().splitlines()]
        seconds = [line["step_seconds"] for line in lines if line["kind"] == "step" and line["step"] > 2]
        self.assertEqual(len(seconds), 6)
        [bench] = [line for line in lines if line["kind"] == "bench"]
        self.assertEqual(bench["median_step_seconds"], statistics.median(seconds))
        printed = float(re.search(r"step +median ([\d.]+) ms", done.stdout).group(1))
        self.assertAlmostEqual(printed, 1e3 * bench["median_step_seconds"], delta=6e-4)
        self.assertRegex(done.stdout, r"\n +axis +calls +ms +hidden +exposed\n +dp +\d+( +\d+\.\d{3}){3}\n")
        self.assertFalse((self.dir / "checkpoints").exists() and list((self.dir / "checkpoints").iterdir()))

    def test_what_a_benchmark_has_no_use_for_is_refused(self):
        self.assert_one_message(self.bench("--set", "training.eval.every_iters=5", check=False), 3, "does not evaluate")
        self.assert_one_message(self.bench("--set", "checkpoint.directory=x", check=False), 3, "neither saves nor loads")
        self.assert_one_message(self.submit("--set", "kind=bench", check=False), 3, "train_iters", "60 steps")
