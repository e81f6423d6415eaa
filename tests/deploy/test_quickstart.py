"""scripts/quickstart.sh chooses the layout by what `mtctl get nodes` tells, and bytes or tokens by what a few seconds of each come to:
its mtctl and its build are stand-ins here."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

SOURCE = pathlib.Path(os.environ["MT_SOURCE_DIR"])
sys.path.append(str(SOURCE / "tests"))

import processes  # noqa: E402  (found by the path above)
import required  # noqa: E402

# Writes down how it is called; answers what the script asks for.
MTCTL = """#!/bin/bash
printf '%s\\n' "$*" >> "$CALLS"
case "$*" in
  *"-o json get nodes"*) cat "$NODES" ;;
  *"-o json describe quickstart-"*) cat "$TRIED/${*: -1}.json" ;;
  *"-o json describe"*) cat "$JOB" ;;
  submit*name=quickstart-*) exit "${TRY_CODE:-0}" ;;
  submit*) exit "${SUBMIT_CODE:-0}" ;;
esac
"""
YAML = "submit -f deploy/examples/quickstart.yaml"
TOKENS = (" --set data.path=[fortunes_token_document] --set data.tokenizer.type=hf --set data.tokenizer.file=fortunes.json"
          " --set training.train_iters=1000")
TRAINED = {"state": "SUCCEEDED", "message": "", "started_us": 0, "finished_us": 0, "resumed_from_step": 0}
GPU = {"device": "GPU", "out_of_order": False}
SICK = {"device": "GPU", "out_of_order": True}
CPU = {"device": "CPU_SLOT", "out_of_order": False}


class QuickstartTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "scripts").mkdir()
        shutil.copy(SOURCE / "scripts/quickstart.sh", self.root / "scripts")
        self.put("scripts/setup.sh", "#!/bin/bash\necho setup \"$*\"\n")
        self.put("scripts/preset.sh", "#!/bin/bash\necho some-preset\n")
        self.put("path/cmake", "#!/bin/bash\n[ \"$1\" = --build ] || echo configure \"$*\" >&2\n")
        (self.root / "path/python3").symlink_to(sys.executable)  # there may be another one, which takes ten times as long to begin
        self.put("build/some-preset/bin/mtctl", MTCTL)
        self.calls = self.root / "calls"

    def put(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def script(self, *slots, code=0, job=None, bits=(3, 2.5), flags=(), try_code=0):
        """Runs it; `bits`: per byte, of the bytes and of the tokens that are tried."""
        nodes, described = self.root / "nodes.json", self.root / "described.json"
        nodes.write_text(json.dumps({"nodes": [{"slots": list(slots)}]}))
        described.write_text(json.dumps(job or TRAINED))
        for name, value in zip(("bytes", "tokens"), bits):
            tried = dict(TRAINED, last_eval={"bits_per_byte": value}) if value else TRAINED
            (self.root / f"quickstart-{name}.json").write_text(json.dumps(tried))
        self.calls.unlink(missing_ok=True)
        env = dict(os.environ, CALLS=str(self.calls), NODES=str(nodes), JOB=str(described), SUBMIT_CODE=str(code), TRIED=str(self.root),
                   TRY_CODE=str(try_code), PATH=f"{self.root}/path:{os.environ['PATH']}")
        done = subprocess.run(["bash", str(self.root / "scripts/quickstart.sh"), *flags], env=env, capture_output=True, text=True,
                              timeout=60, check=False)
        self.assertEqual(done.returncode, try_code or code, done.stdout + done.stderr)
        calls = self.calls.read_text().splitlines()
        self.assertEqual(calls[-1], "dev down", "what was started is stopped")
        return calls, done.stdout

    def run_with(self, *slots, code=0, directory=".quickstart/checkpoints/default/quickstart", tries=2, tokens=True, **more):
        """Returns the call that trains, those that try before it, and what was said."""
        calls, said = self.script(*slots, code=code, **more)
        *tried, submit = [call for call in calls if call.startswith("submit")]
        self.assertEqual(len(tried), tries, calls)
        text = "The" if tokens else "The "
        samples = [] if code else [f"generate quickstart --prompt {text} --samples 3 --temperature 0.7 --tokens 60 --wait"]
        last = ["plot quickstart", *samples, "dev down"]
        self.assertEqual(calls[-len(last):], last, "its curve is shown, and what a trained model writes")
        self.assertIn("setup --programs\n", said)
        self.assertRegex(said, r"(?m)^  export PATH=.*some-preset/bin.* XDG_STATE_HOME=.*/.quickstart/state$")
        flags = '"I"' if tokens else '"I "'
        self.assertRegex(said, rf"(?m)^  mtctl generate \S*/{re.escape(directory)} --prompt {flags} *#")
        return submit, tried, said

    def test_a_gpu_trains_the_job_alone(self):
        layout = " --set parallel.tensor=1 --set parallel.pipeline=1"
        submit, tried, said = self.run_with(CPU, GPU, CPU)
        self.assertEqual(submit, f"{YAML}{layout}{TOKENS} --follow")
        self.assertTrue(all(call.startswith(f"{YAML}{layout} --set") for call in tried), tried)
        self.assertIn("training on a GPU, on tokens\n", said)

    def test_two_are_used_of_two_and_more(self):
        for slots in ((GPU, GPU), (SICK, GPU, GPU, GPU, CPU)):
            submit, _, said = self.run_with(*slots, flags=("--fresh",))
            self.assertEqual(submit, f"{YAML} --set parallel.tensor=1 --set parallel.pipeline=1 --set parallel.data=2{TOKENS} --follow")
            self.assertIn("training on two GPUs", said)

    def test_without_one_cpu_slots_do(self):
        for slots in ((CPU,) * 4, (CPU,) * 4 + (SICK,)):
            submit, _, said = self.run_with(*slots, flags=("--fresh",))
            self.assertEqual(submit, f"{YAML}{TOKENS} --follow")
            self.assertIn("training on CPU slots", said)

    def test_a_job_that_fails_is_the_scripts_exit_code(self):
        self.run_with(CPU, code=7)

    def test_both_are_tried_alike_for_the_same_time(self):
        _, tried, said = self.run_with(CPU)
        alike = []
        for call, name, data in zip(tried, ("bytes", "tokens"), ("", TOKENS)):
            self.assertIn(f" --set name=quickstart-{name} --set training.exit_after=7s", call)
            self.assertIn(" --set checkpoint.directory=none --set checkpoint.every_iters=0 ", call, "nothing is kept of it")
            alike.append(call.replace(data, "").replace(name, ""))
        self.assertEqual(alike[0], alike[1])
        self.assertIn("\nbytes 3.0000\ntokens 2.5000\n", said)
        self.assertRegex(said, r"(?m)^tried at first +bytes 3.0000; tokens 2.5000 \(bits per byte after 7 s of each\)$")

    def test_the_better_of_both_is_used_from_then_on(self):
        submit, _, said = self.run_with(CPU, bits=(2.25, 2.5), tokens=False)
        self.assertEqual(submit, f"{YAML} --follow")
        self.assertIn("training on CPU slots, on bytes\n", said)
        # A run goes on with what it began with, without another try.
        submit, _, said = self.run_with(CPU, bits=(3, 2), tokens=False, tries=0)
        self.assertEqual(submit, f"{YAML} --follow")
        self.assertRegex(said, r"(?m)^tried at first +bytes 2.2500; tokens 2.5000 ")
        submit, _, _ = self.run_with(CPU, bits=(3, 2), flags=("--fresh",))
        self.assertEqual(submit, f"{YAML}{TOKENS} --follow")

    def test_a_machine_too_slow_to_tell_trains_on_bytes(self):
        for bits in ((None, 2), (3, None), (None, None)):
            submit, _, said = self.run_with(CPU, bits=bits, tokens=False, flags=("--fresh",))
            self.assertEqual(submit, f"{YAML} --follow")
            self.assertIn(" not evaluated in time\n", said)

    def test_a_try_that_fails_ends_it_and_is_made_again(self):
        calls, _ = self.script(CPU, try_code=9)
        self.assertEqual(sum(call.startswith("submit") for call in calls), 1, calls)
        self.run_with(CPU)

    def test_a_run_of_an_earlier_version_goes_on_with_bytes_where_it_lies(self):
        (self.root / ".quickstart/checkpoints/quickstart").mkdir(parents=True)
        submit, _, said = self.run_with(CPU, job=dict(TRAINED, checkpoint_path="/clone/checkpoints/quickstart"), tries=0, tokens=False,
                                        directory="clone/checkpoints/quickstart")
        self.assertEqual(submit, f"{YAML} --follow")
        self.assertNotIn("tried at first", said)


class QuickstartTwiceTest(unittest.TestCase):
    """The script with the real programs, for fewer steps: it trains, and once more it has nothing to train, as its last line says."""

    def setUp(self):
        if not pathlib.Path("/usr/share/games/fortunes").is_dir():
            required.missing("the package fortunes, of which the quick start makes its data")
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="mtquick-"))
        self.addCleanup(lambda: self.assertEqual(processes.sweep(self.root), [], "processes left running, now killed"))
        for folder in ("scripts", "deploy/examples", "path", "build/some-preset"):
            (self.root / folder).mkdir(parents=True)
        shutil.copy(SOURCE / "scripts/quickstart.sh", self.root / "scripts")
        (self.root / "build/some-preset/bin").symlink_to(os.environ["MT_BIN"])
        for name, text in (("scripts/setup.sh", ""), ("scripts/preset.sh", "echo some-preset"), ("path/cmake", "")):
            (self.root / name).write_text(f"#!/bin/bash\n{text}\n")
            (self.root / name).chmod(0o755)
        script = self.root / "scripts/quickstart.sh"
        text = script.read_text()
        self.assertIn("training.train_iters=1000", text)
        script.write_text(text.replace("training.train_iters=1000", "training.train_iters=12"))
        text = (SOURCE / "deploy/examples/quickstart.yaml").read_text()
        for before, after in (("train_iters: 1200", "train_iters: 12"), ("every_iters: 300", "every_iters: 6"),
                              ("warmup: 100", "warmup: 2"), ("iters: 20", "iters: 2"), ("layers: 4", "layers: 2"),
                              ("hidden_size: 128", "hidden_size: 16")):
            self.assertIn(before, text)
            text = text.replace(before, after)
        (self.root / "deploy/examples/quickstart.yaml").write_text(text + "placement: {device: cpu}\n")

    def quickstart(self):
        env = dict(os.environ, HOME=str(self.root), PATH=f"{self.root}/path:{os.environ['PATH']}")
        env.pop("MTCTL_COORDINATOR", None)
        done = subprocess.run(["bash", str(self.root / "scripts/quickstart.sh")], env=env, capture_output=True, text=True,
                              timeout=280, check=False, stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(done.stdout.count("== sample "), 3, done.stdout)
        return done.stdout

    def value(self, said, name):
        return re.search(rf"(?m)^{name} +(.*)$", said.split("== summary")[1])[1]

    def runs(self):
        return [run["id"] for run in json.loads((self.root / ".quickstart/checkpoints/default/quickstart/run.json").read_text())["runs"]]

    def test_as_its_last_line_says(self):
        first = self.quickstart()
        run, = self.runs()
        said = self.value(first, "tried at first")
        # A machine that is too slow for an evaluation in seven seconds trains on bytes.
        late = "not evaluated in time"
        tried = re.fullmatch(rf"bytes (\d+\.\d+|{late}); tokens (\d+\.\d+|{late}) \(bits per byte after 7 s of each\)", said)
        self.assertTrue(tried, said)
        better = "tokens" if late not in tried.groups() and float(tried[2]) < float(tried[1]) else "bytes"
        self.assertIn(f"== training on CPU slots, on {better}\n", first)
        self.assertRegex(self.value(first, "validation loss"), r"^\d+\.\d+ nats per token, \d+\.\d+ bits per byte, over \d+ tokens$")
        self.assertEqual(self.value(first, "state"), "SUCCEEDED trained to step 12")
        self.assertTrue(first.endswith("Once more: bash scripts/quickstart.sh goes on where it was interrupted, or has nothing to train "
                                       "and evaluates; --fresh trains anew.\n"), first[-300:])
        # What it tells to type needs no cluster.
        line = re.search(r"(?m)^  mtctl (generate .*?) *#", first)[1]
        subprocess.run(["bash", "-c", f"{os.environ['MT_BIN']}/mtctl {line} --tokens 2"], check=True, capture_output=True, timeout=60)
        again = self.quickstart()
        self.assertEqual(self.value(again, "state"), f"SUCCEEDED nothing to do: run {run} has 12 of 12 steps")
        self.assertNotIn("== bytes or tokens", again)
        for name in ("validation loss", "tried at first", "checkpoint"):
            self.assertEqual(self.value(again, name), self.value(first, name))
        self.assertEqual(self.runs(), [run])


class PresetTest(unittest.TestCase):
    """scripts/preset.sh: the CUDA backend is compiled for tests wherever that can be, and for a run where there is a GPU."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        (self.root / "scripts").mkdir()
        shutil.copy(SOURCE / "scripts/preset.sh", self.root / "scripts")
        self.put("path/nvcc", "")

    def put(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/bash\n" + text)
        path.chmod(0o755)

    def preset(self, *options, **variables):
        env = dict({k: v for k, v in os.environ.items() if k != "MT_PRESET"}, PATH=f"{self.root}/path:/usr/bin:/bin", **variables)
        return subprocess.run(["bash", str(self.root / "scripts/preset.sh"), *options], env=env, capture_output=True, text=True,
                              timeout=30, check=True).stdout.strip()

    def test_a_run_compiles_cuda_where_there_is_a_gpu(self):
        self.put("path/nvidia-smi", "echo 'No devices were found'; exit 6\n")
        self.assertEqual(self.preset(), "cuda-release")
        self.assertEqual(self.preset("--run"), "cpu-release")
        self.put("path/nvidia-smi", "echo 'GPU 0: NVIDIA H200 (UUID: GPU-1)'\n")
        self.assertEqual(self.preset("--run"), "cuda-release")
        self.assertEqual(self.preset("--run", MT_PRESET="cpu-debug"), "cpu-debug")

    def test_a_run_takes_what_is_built(self):
        self.put("path/nvidia-smi", "exit 9\n")
        self.put("build/cuda-release/bin/mt-rank", "")
        self.assertEqual(self.preset("--run"), "cuda-release")
        self.put("build/cpu-release/bin/mt-rank", "")
        self.assertEqual(self.preset("--run"), "cpu-release")


if __name__ == "__main__":
    unittest.main()
