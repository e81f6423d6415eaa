"""GPU slots on a machine without one: a library stands in for the driver's (tests/common/nvml/fake_driver.cc) and tells of two
GPUs. Placement, naming and failures are real; a rank finds no such GPU and says so.
"""
import json
import os
import pathlib
import shutil
import subprocess
import unittest

from harness import BIN
from service_harness import ServiceTest

FAKE_DRIVER = os.environ.get("MT_FAKE_DRIVER", str(BIN.parent / "fake_driver"))


class GpuServiceTest(ServiceTest):
    gpus = "all"
    autostart = False
    fake = ""
    with_module = True

    def setUp(self):
        super().setUp()
        self.assertTrue((pathlib.Path(FAKE_DRIVER) / "libnvidia-ml.so.1").exists(), FAKE_DRIVER)
        self.env["LD_LIBRARY_PATH"] = FAKE_DRIVER
        self.env["MT_FAKE_NVML"] = self.fake
        self.env.pop("CUDA_VISIBLE_DEVICES", None)
        # A worker offers GPUs where mt-rank has the CUDA module beside it: that of this build, else an empty file. A link to
        # mt-rank lies elsewhere.
        self.programs = self.dir / "programs"
        self.programs.mkdir()
        shutil.copy(BIN / "mt-rank", self.programs)
        module = BIN / "libmt_cuda.so"
        if self.with_module and module.exists():
            (self.programs / module.name).symlink_to(module)
        elif self.with_module:
            (self.programs / module.name).touch()
        self.rank_binary = self.dir / "mt-rank"
        self.rank_binary.symlink_to(self.programs / "mt-rank")
        self.start_coordinator()

    def start_node(self, *flags):
        self.start_worker("node-a", 2, "--rank-binary", str(self.rank_binary), *flags)
        self.wait_nodes(1)

    def node(self):
        return self.nodes()[0]

    def finished(self, name="tiny"):
        final = ("SUCCEEDED", "FAILED", "CANCELLED")
        return self.wait_for("the job's end", lambda: (j := self.job(name))["state"] in final and j, limit=90)


class GpuJobTest(GpuServiceTest):
    def test_probe_prints_the_gpus(self):
        done = subprocess.run([str(BIN / "mt-gpu-probe")], env=self.env, capture_output=True, text=True, timeout=30,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        found = json.loads(done.stdout)
        self.assertEqual([d["uuid"] for d in found["devices"]], ["GPU-aaaa", "GPU-bbbb"])
        self.assertEqual(found["devices"][0]["nvlink_peers"], ["GPU-bbbb"])
        self.assertEqual(subprocess.run([str(BIN / "mt-gpu-probe"), "--x"], env=self.env, capture_output=True, timeout=30,
                                        check=False).returncode, 2)

    def test_a_job_on_a_gpu_fails_by_name_and_the_worker_stays_up(self):
        self.start_node()
        node = self.node()
        self.assertEqual([s["device"] for s in node["slots"]], ["GPU", "GPU", "CPU_SLOT", "CPU_SLOT"])
        self.assertEqual(node["slots"][1]["gpu"]["uuid"], "GPU-bbbb")
        self.assertIn("2 of 2     2 of 2    NVIDIA H200", self.mtctl("get", "nodes").stdout)
        self.assertIn("GPU-aaaa", self.mtctl("describe", "node", "node-a").stdout)
        worker = self.workers["node-a"].pid
        self.submit("--set", "placement.device=gpu", "--set", "parallel.data=1")
        job = self.finished()
        self.assertEqual(job["state"], "FAILED")
        self.assertEqual(job["spec"]["training"]["precision"], "bf16")
        rank = job["ranks"][0]
        self.assertEqual((rank["slot"], rank["gpu"]), (0, "GPU-aaaa"))
        self.assertEqual((rank["exit_code"], rank["exit_signal"]), (71, 0))
        self.assertRegex(job["message"], r"CUDA backend: (no usable GPU or driver on this host: cudaGetDeviceCount: .*; install a driver|"
                         r"no GPU GPU-aaaa: this process sees|.*are CUDA's libraries installed here\?)")
        self.assertTrue(job["last_log_lines"])
        # Nothing of it is left, and the next job trains here.
        self.assertIsNone(self.workers["node-a"].poll())
        self.assertEqual(self.workers["node-a"].pid, worker)
        self.assertEqual([s["job_uid"] for s in self.node()["slots"]], [""] * 4)
        self.submit("--set", "name=after", "--set", "training.train_iters=10")
        self.assertEqual(self.finished("after")["state"], "SUCCEEDED")

    def test_auto_takes_a_gpu_for_each_rank(self):
        self.start_node()
        self.job_file.write_text(self.job_file.read_text().replace("placement: {device: cpu}", ""))
        self.submit()
        job = self.finished()
        self.assertEqual(job["spec"]["placement"]["device"], "gpu")
        self.assertEqual([rank["gpu"] for rank in job["ranks"]], ["GPU-aaaa", "GPU-bbbb"])
        self.assertEqual(job["state"], "FAILED", "this machine has none")
        self.submit("--set", "name=one", "--set", "parallel.data=1")
        self.assertEqual(self.finished("one")["spec"]["placement"]["device"], "gpu")

    def test_auto_without_gpus_trains_on_cpu_slots(self):
        self.env["MT_FAKE_NVML"] = "unloaded"
        self.start_node()
        self.assertEqual(self.node()["gpu_problem"], "")
        self.job_file.write_text(self.job_file.read_text().replace("placement: {device: cpu}", ""))
        self.submit("--set", "training.train_iters=10")
        job = self.finished()
        self.assertEqual(job["state"], "SUCCEEDED", job["message"])
        self.assertEqual(job["spec"]["placement"]["device"], "cpu")
        self.assertEqual(job["spec"]["training"]["precision"], "fp32")

    def test_chosen_gpus_and_what_is_visible(self):
        self.start_node("--gpus", "GPU-bbbb")
        gpus = [s["gpu"]["uuid"] for s in self.node()["slots"] if s["device"] == "GPU"]
        self.assertEqual(gpus, ["GPU-bbbb"])
        self.stop_worker("node-a")
        self.env["CUDA_VISIBLE_DEVICES"] = "GPU-aa"
        self.start_node()  # the same flags: the wanted one is not visible now
        self.wait_for("the reason", lambda: "GPU-bbbb of --gpus was not found" in self.node()["gpu_problem"])

    def test_memory_that_is_not_freed_holds_the_job_back(self):
        used = self.dir / "used"
        used.write_text("1000000000")
        self.env["MT_FAKE_NVML_USED"] = str(used)
        self.start_node()
        used.write_text("90000000000")
        self.submit("--set", "placement.device=gpu", "--set", "parallel.data=1")
        self.wait_for("the rank's end", lambda: any(r["exited"] for r in self.job()["ranks"]))
        self.assertEqual(self.job()["state"], "STOPPING")
        self.assertNotEqual(self.node()["slots"][0]["job_uid"], "", "offered before its memory was free")
        used.write_text("1000000000")
        self.assertEqual(self.finished()["state"], "FAILED")
        self.assertEqual(self.node()["slots"][0]["job_uid"], "")


class NoModuleTest(GpuServiceTest):
    with_module = False

    def test_without_the_module_gpus_are_not_offered_and_cpu_slots_train(self):
        self.start_node()
        node = self.node()
        self.assertEqual([s["device"] for s in node["slots"]], ["CPU_SLOT", "CPU_SLOT"])
        for text in ("2 GPUs found, but ranks could not use them: no module at", str(self.programs / "libmt_cuda.so"),
                     "start the worker with --gpus none"):
            self.assertIn(text, node["gpu_problem"])
        self.assertIn("2 GPUs found", self.mtctl("describe", "node", "node-a").stdout)
        self.job_file.write_text(self.job_file.read_text().replace("placement: {device: cpu}", ""))
        self.submit("--set", "training.train_iters=10")
        job = self.finished()
        self.assertEqual(job["state"], "SUCCEEDED", job["message"])
        self.assertEqual(job["spec"]["placement"]["device"], "cpu")


class SickDriverTest(GpuServiceTest):
    def test_a_gpu_that_the_backend_is_not_built_for_costs_itself(self):
        self.env["MT_FAKE_NVML"] = "unfit"
        self.start_node()
        self.assertEqual([s["gpu"]["uuid"] for s in self.node()["slots"] if s["device"] == "GPU"], ["GPU-bbbb"])
        self.assertIn("GPU 0 (GPU-aaaa) has compute capability 7.5; the CUDA backend is built for 8.x and 9.0",
                      self.mtctl("describe", "node", "node-a").stdout)

    def test_one_sick_gpu_costs_itself(self):
        self.env["MT_FAKE_NVML"] = "sick"
        self.start_node()
        node = self.node()
        self.assertEqual([s["gpu"]["uuid"] for s in node["slots"] if s["device"] == "GPU"], ["GPU-aaaa"])
        self.assertIn("GPU is lost", node["gpu_problem"])
        self.assertIn("GPU is lost", self.mtctl("describe", "node", "node-a").stdout)

    def test_a_gpu_in_mig_mode_costs_itself(self):
        self.env["MT_FAKE_NVML"] = "mig"
        self.start_node()
        node = self.node()
        self.assertEqual([s["gpu"]["uuid"] for s in node["slots"] if s["device"] == "GPU"], ["GPU-bbbb"])
        reason = "GPU 0 (GPU-aaaa) is in MIG mode: not offered; disable it"
        self.assertIn(reason, self.mtctl("describe", "node", "node-a").stdout)
        self.assertIn(reason, (self.dir / "node-a.log").read_text())

    def test_a_driver_that_does_not_work_costs_the_gpus(self):
        self.env["MT_FAKE_NVML"] = "broken"
        self.start_node()
        node = self.node()
        self.assertEqual([s["device"] for s in node["slots"]], ["CPU_SLOT", "CPU_SLOT"])
        self.assertIn("Driver/library version mismatch", node["gpu_problem"])
        self.submit("--set", "training.train_iters=10")
        self.assertEqual(self.finished()["state"], "SUCCEEDED")

    def test_a_driver_that_hangs_costs_ten_seconds(self):
        self.env["MT_FAKE_NVML"] = "hang"
        self.start_node()
        self.assertIn("has not answered within 10 s", self.node()["gpu_problem"])
        self.assertEqual(len(self.node()["slots"]), 2)


if __name__ == "__main__":
    unittest.main()
