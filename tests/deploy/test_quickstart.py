"""scripts/quickstart.sh chooses the layout by what `mtctl get nodes` tells: its mtctl and its build are stand-ins here."""
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
  *"-o json describe"*) cat "$JOB" ;;
  submit*) exit "${SUBMIT_CODE:-0}" ;;
esac
"""
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
        self.put("build/some-preset/bin/mtctl", MTCTL)
        self.calls = self.root / "calls"

    def put(self, name, text):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def run_with(self, *slots, code=0, job=None, directory=".quickstart/checkpoints/default/quickstart"):
        nodes, described = self.root / "nodes.json", self.root / "described.json"
        nodes.write_text(json.dumps({"nodes": [{"slots": list(slots)}]}))
        described.write_text(json.dumps(job or TRAINED))
        env = dict(os.environ, CALLS=str(self.calls), NODES=str(nodes), JOB=str(described), SUBMIT_CODE=str(code),
                   PATH=f"{self.root}/path:{os.environ['PATH']}")
        done = subprocess.run(["bash", str(self.root / "scripts/quickstart.sh")], env=env, capture_output=True, text=True,
                              timeout=60, check=False)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        calls = self.calls.read_text().splitlines()
        submits = [call for call in calls if call.startswith("submit")]
        self.assertEqual(len(submits), 1, calls)
        samples = [] if code else ["generate quickstart --prompt The  --samples 3 --temperature 0.7 --tokens 60"]
        last = ["plot quickstart", *samples, "dev down"]
        self.assertEqual(calls[-len(last):], last, "its curve is shown, and what a trained model writes; what was started is stopped")
        self.assertIn("setup --programs\n", done.stdout)
        self.assertRegex(done.stdout, r"(?m)^  export PATH=.*some-preset/bin.* XDG_STATE_HOME=.*/.quickstart/state$")
        self.assertRegex(done.stdout, rf"(?m)^  mtctl generate \S*/{re.escape(directory)} --prompt")
        return submits[0], done.stdout

    def test_a_gpu_trains_the_job_alone(self):
        submit, said = self.run_with(CPU, GPU, CPU)
        self.assertEqual(submit, "submit -f deploy/examples/quickstart.yaml --set parallel.tensor=1 --set parallel.pipeline=1 --follow")
        self.assertIn("training on a GPU", said)

    def test_two_are_used_of_two_and_more(self):
        for slots in ((GPU, GPU), (SICK, GPU, GPU, GPU, CPU)):
            self.calls.unlink(missing_ok=True)
            submit, said = self.run_with(*slots)
            self.assertEqual(submit, "submit -f deploy/examples/quickstart.yaml --set parallel.tensor=1 --set parallel.pipeline=1 "
                                     "--set parallel.data=2 --follow")
            self.assertIn("training on two GPUs", said)

    def test_without_one_cpu_slots_do(self):
        for slots in ((CPU,) * 4, (CPU,) * 4 + (SICK,)):
            self.calls.unlink(missing_ok=True)
            submit, said = self.run_with(*slots)
            self.assertEqual(submit, "submit -f deploy/examples/quickstart.yaml --follow")
            self.assertIn("training on CPU slots", said)

    def test_a_job_that_fails_is_the_scripts_exit_code(self):
        self.run_with(CPU, code=7)

    def test_a_run_of_an_earlier_version_has_its_directory(self):
        self.run_with(CPU, job=dict(TRAINED, checkpoint_path="/clone/checkpoints/quickstart"), directory="clone/checkpoints/quickstart")


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
                              timeout=120, check=False, stdin=subprocess.DEVNULL)
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
        self.assertEqual(self.value(first, "state"), "SUCCEEDED trained to step 12")
        self.assertTrue(first.endswith("Once more: bash scripts/quickstart.sh goes on where it was interrupted, or has nothing to train "
                                       "and evaluates; --fresh trains anew.\n"), first[-300:])
        # What it tells to type needs no cluster.
        line = re.search(r"(?m)^  mtctl (generate .*?) *#", first)[1]
        subprocess.run(["bash", "-c", f"{os.environ['MT_BIN']}/mtctl {line} --tokens 2"], check=True, capture_output=True, timeout=60)
        again = self.quickstart()
        self.assertEqual(self.value(again, "state"), f"SUCCEEDED nothing to do: run {run} has 12 of 12 steps")
        for name in ("validation loss", "checkpoint"):
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
