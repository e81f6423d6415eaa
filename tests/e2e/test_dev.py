"""`mtctl dev`: what runs is left alone, what is missing is started, settings are kept, and what stays behind can be removed."""
import json
import os
import signal
import socket
import unittest

from harness import ClusterTest
from processes import alive_with

LONG = ("--set", "training.train_iters=1000000", "--set", "checkpoint.every_iters=0")


class DevTest(ClusterTest):
    def rank_processes(self):
        return sorted(pid for pid in alive_with(str(self.dir)) if os.path.basename(os.readlink(f"/proc/{pid}/exe")) == "mt-rank")

    def kill(self, pid):
        """Until its last thread is gone, and with it its port and its locks."""
        os.kill(pid, signal.SIGKILL)
        self.wait_for("its end", lambda: self.threads(pid) == 0, 10)

    def threads(self, pid):
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
                fields = stat.read().rsplit(")", 1)[1].split()
        except OSError:
            return 0
        return 0 if fields[0] in "ZX" and int(fields[17]) <= 1 else int(fields[17])

    def step(self):
        return self.job().get("last_step", {}).get("step", 0)

    def test_what_a_crash_has_left_running_goes_on(self):
        self.up()
        self.submit(*LONG)
        self.wait_for("steps", lambda: self.step() > 3)
        coordinator, worker = self.dev_pids()
        ranks, endpoint = self.rank_processes(), self.endpoint()
        self.assertEqual(len(ranks), 2)

        # Its port is somebody else's now: nothing is touched, and the message says whose.
        self.kill(coordinator)
        port = int(endpoint.rsplit(":", 1)[1])
        with socket.socket() as taken:
            taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            taken.bind(("127.0.0.1", port))
            taken.listen()
            self.assert_one_message(self.mtctl("dev", "up", check=False), 3, endpoint, rf"python3.* \(process {os.getpid()}\)",
                                    "mtctl dev down")
        self.assertEqual(self.mtctl("dev", "status", check=False).returncode, 1)
        self.assertEqual(self.dev_pids()[1], worker)

        done = self.mtctl("dev", "up")
        self.assertIn("up again (the coordinator was started", done.stdout)
        self.assertIn(endpoint, done.stdout)
        self.assertEqual(self.dev_pids()[1], worker)
        self.assertNotEqual(self.dev_pids()[0], coordinator)
        self.assertEqual(self.endpoint(), endpoint)
        before = self.step()
        self.wait_for("further steps", lambda: self.step() > before)
        self.assertEqual(self.rank_processes(), ranks)
        self.assertEqual(self.job()["epoch"] % 2**20, 1)
        self.assertEqual(self.job()["state"], "RUNNING")

        # The worker is missing; the coordinator is not started again.
        coordinator = self.dev_pids()[0]
        self.kill(worker)
        self.assertIn("up again (the worker was started", self.mtctl("dev", "up").stdout)
        self.assertEqual(self.dev_pids()[0], coordinator)
        self.assertIn("already up", self.mtctl("dev", "up").stdout)

    def test_settings_are_kept_and_a_running_cluster_is_not_changed(self):
        self.up()
        pids = self.dev_pids()
        (self.dir / "other").mkdir()
        refused = self.mtctl("dev", "up", "--cpu-slots", "3", "--data-root", "other", check=False)
        self.assert_one_message(refused, 3, "runs with --cpu-slots 2 --data-root .*/data",
                                "mtctl dev down && mtctl dev up --cpu-slots 3 --data-root .*/other")
        # The same in other words is no change.
        self.assertIn("already up", self.mtctl("dev", "up", "--cpu-slots", "2", "--data-root", "./data/").stdout)
        self.assertEqual(self.dev_pids(), pids)
        self.mtctl("dev", "down")
        up = self.mtctl("dev", "up", "--cpu-slots", "3").stdout
        for words in ("CPU slots 3", "GPUs none", f"data root {self.dir / 'data'}", f"checkpoints {self.dir / 'ckpt'}"):
            self.assertIn(words, up)
        self.assertEqual(len(self.nodes()[0]["slots"]), 3)
        status = json.loads(self.mtctl("-o", "json", "dev", "status").stdout)
        self.assertEqual((status["cpu_slots"], status["gpus"], status["data_root"]), (3, "none", str(self.dir / "data")))
        self.assertIn(f"data root   {self.dir / 'data'}", self.mtctl("dev", "status").stdout)
        self.mtctl("dev", "down")
        (self.dir / "data").rename(self.dir / "moved")
        self.assert_one_message(self.mtctl("dev", "up", check=False), 3, "--data-root .*/data is not a folder")
        (self.dir / "moved").rename(self.dir / "data")

    def test_purge_leaves_checkpoints_alone(self):
        self.up()
        self.submit("--follow")
        saved = self.checkpoints()
        self.assertTrue(saved)
        dev = self.dir / "s/megatrain/dev"
        (dev / "notes").write_text("mine")
        self.assert_one_message(self.mtctl("dev", "down", "--purge", check=False), 128, "--yes")
        self.assertEqual(self.mtctl("dev", "status").returncode, 0)
        done = self.mtctl("dev", "down", "--purge", "--yes")
        self.assertRegex(done.stdout, rf"(?s)^down\nremoved [0-9.]+ [KM]iB; checkpoints stay: [0-9.]+ [KM]iB in {self.dir / 'ckpt'}")
        self.assertEqual(sorted(p.name for p in dev.iterdir()), ["lock", "notes"])
        self.assertEqual(self.checkpoints(), saved)
        # A new cluster knows no job, and the same job goes on from where the old one's has saved.
        self.up()
        self.assertEqual(json.loads(self.mtctl("-o", "json", "get", "jobs").stdout).get("jobs", []), [])
        self.submit("--follow")
        self.assertEqual(self.job()["resumed_from_step"], int(saved[-1].split("-")[1]))
        self.mtctl("dev", "down")
        # Where nothing runs, what is left goes as well; whose the directories are nobody can tell.
        done = self.mtctl("dev", "down", "--purge", "--yes")
        self.assertIn("remove its file FENCE", done.stderr)
        self.assertFalse((dev / "coordinator").exists())

    def test_ranks_that_outlive_both_daemons_end_with_down(self):
        self.up()
        self.submit(*LONG, "--set", "resilience.on_agent_exit=continue")
        self.wait_for("steps", lambda: self.step() > 3)
        for pid in self.dev_pids():
            self.kill(pid)
        self.assertEqual(len(self.rank_processes()), 2)
        self.assertEqual(self.mtctl("dev", "down", check=False).returncode, 3)
        self.assertEqual(self.rank_processes(), [])


if __name__ == "__main__":
    unittest.main()
