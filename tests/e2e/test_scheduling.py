"""Where and how long a job runs: priority, node_selector, exclusive, deadline, exit_after, exit_at_iter; and lost nodes."""
import json
import signal
import subprocess
import unittest

from harness import BIN
from service_harness import SOON_LOST, ServiceTest, make_store

LONG = ("--set", "training.train_iters=1000000", "--set", "checkpoint.every_iters=0")


class SchedulingTest(ServiceTest):
    autostart = False

    def start(self, **workers):
        self.start_coordinator()
        for name, (slots, *flags) in workers.items():
            self.start_worker(name, slots, *flags)
        self.wait_nodes(len(workers))

    def test_priority_decides_who_is_next(self):
        self.start(node_a=(2,))
        self.submit(*LONG, "--set", "name=first")
        self.wait_step(2, "first")
        self.submit("--set", "name=low", "--set", "priority=-5")
        self.submit("--set", "name=high", "--set", "priority=5")
        self.mtctl("cancel", "first", "--yes")
        self.mtctl("wait", "low", timeout=120)
        self.assertLess(int(self.job("high")["started_us"]), int(self.job("low")["started_us"]))

    def test_node_selector_waits_for_a_node_with_the_labels(self):
        self.start(plain=(2,))
        self.submit("--set", "placement.node_selector.disk=fast")
        self.wait_for("a reason", lambda: "disk=fast" in self.job().get("message", ""))
        self.assertEqual(self.state(), "QUEUED")
        self.start_worker("quick", 2, "--label", "disk=fast")
        self.mtctl("wait", "tiny", timeout=120)
        self.assertEqual({r["node"] for r in self.job()["ranks"]}, {"quick"})

    def test_exclusive_takes_whole_nodes(self):
        self.start(node_a=(2,), node_b=(2,))
        self.submit(*LONG, "--set", "name=small", "--set", "parallel.data=1")
        self.wait_step(2, "small")
        taken = self.job("small")["ranks"][0]["node"]
        self.submit(*LONG, "--set", "name=alone", "--set", "parallel.data=1", "--set", "placement.exclusive=true")
        self.wait_step(2, "alone")
        self.assertNotEqual(self.job("alone")["ranks"][0]["node"], taken)
        # One slot is free on each node, but the second node is alone's.
        self.submit("--set", "name=pair")
        self.wait_for("a reason to wait", lambda: self.job("pair").get("message"))
        self.assertEqual(self.state("pair"), "QUEUED")
        self.submit("--follow", "--set", "name=single", "--set", "parallel.data=1", "--set", "priority=1")
        self.assertEqual(self.job("single")["ranks"][0]["node"], taken)
        self.mtctl("cancel", "small", "--yes")
        self.mtctl("wait", "pair", timeout=120)
        self.assertEqual({r["node"] for r in self.job("pair")["ranks"]}, {taken})

    def test_deadline_fails_the_job_with_its_cause(self):
        self.start(node_a=(2,))
        self.submit(*LONG, "--set", "resilience.deadline=1h")
        self.wait_step(3)
        # It counts from the submission: it is over, and the job trains, however long the start took.
        self.mtctl("update", "tiny", "--set", "resilience.deadline=1s")
        job = self.wait_state("FAILED", limit=60)
        self.assertEqual(job["cause"], "DEADLINE")
        self.assertGreater(int(job["last_checkpoint"]["step"]), 0, "what was trained is saved")
        self.submit(*LONG, "--set", "name=queued", "--set", "placement.node_selector.no=where",
                    "--set", "resilience.deadline=2s")
        self.assertEqual(self.wait_state("FAILED", "queued", limit=30)["cause"], "DEADLINE")

    def test_exit_conditions_end_with_a_checkpoint_and_go_on_later(self):
        self.start(node_a=(2,))
        self.submit("--follow", "--set", "training.exit_at_iter=15")
        job = self.job()
        self.assertEqual((job["state"], int(job["last_step"]["step"])), ("SUCCEEDED", 15))
        self.assertEqual(int(job["last_checkpoint"]["step"]), 15)
        self.assertIn("exit_at_iter", job["message"])
        self.submit("--follow", "--set", "name=again", "--set", "checkpoint.directory=default/tiny")
        again = self.job("again")
        self.assertEqual(int(again["resumed_from_step"]), 15)
        # It is the same run, by whatever job: in the jobs, events, checkpoints, files and metrics.
        run = job["run"]["id"]
        self.assertEqual(again["run"]["id"], run)
        self.assertEqual([e["run"] for e in self.events() if e["type"] == "RunBegan"], [run])
        self.assertEqual([e["message"] for e in self.events("again") if e["type"] == "RunContinued"], [f"run {run} goes on from step 15"])
        self.assertEqual({c["run"] for c in again["checkpoints"]}, {run})
        listed = json.loads((self.folder() / "run.json").read_text())
        self.assertEqual([(one["id"], one["epochs"]) for one in listed["runs"]], [(run, [[1, 2]])])
        self.wait_for("the run in /metrics", lambda: any(
            line.startswith("mt_job_run_info{") and f'run="{run}"' in line for line in self.http(self.http_port).splitlines()))
        # All of its steps are shown under the newer name, those of the first attempt too.
        csv = self.mtctl("metrics", "again", "--all", "-o", "csv").stdout.splitlines()
        self.assertEqual([int(line.split(",")[0]) for line in csv[1:]], list(range(1, 41)))
        # Another one on purpose, beside what the first has saved.
        self.submit("--follow", "--restart", "--set", "name=anew", "--set", "checkpoint.directory=default/tiny")
        anew = self.job("anew")
        self.assertEqual(int(anew["first_step"]["step"]), 1)
        self.assertNotIn(anew["run"]["id"], ("", run))
        listed = json.loads((self.folder() / "run.json").read_text())
        self.assertEqual([(one["id"], bool(one.get("restart"))) for one in listed["runs"]], [(run, False), (anew["run"]["id"], True)])
        self.assertTrue(any(e["message"] == "anew: begins another run" for e in self.events("anew")))
        self.submit(*LONG, "--set", "name=timed", "--set", "training.exit_after=3s")
        job = self.wait_state("SUCCEEDED", "timed")
        self.assertIn("exit_after", job["message"])
        self.assertEqual(job["last_checkpoint"]["step"], job["last_step"]["step"])

    def test_jobs_of_one_name_in_two_namespaces_do_not_meet(self):
        self.start(node_a=(2,))

        def train(namespace, *flags):
            self.submit("-n", namespace, "--wait", "--set", "checkpoint.every_iters=20", *flags)
            return json.loads(self.mtctl("-n", namespace, "-o", "json", "describe", "tiny").stdout)

        of_a = train("team-a")
        of_b = train("team-b", "--set", "optimizer.lr=1e-4")
        for namespace, job in (("team-a", of_a), ("team-b", of_b)):
            self.assertEqual(job["message"], "trained to step 40")
            self.assertEqual(job.get("resumed_from_step", 0), 0)
            self.assertEqual(job["checkpoint_path"], str(self.dir / "ckpt" / namespace / "tiny"))
            self.assertEqual(job["spec"]["checkpoint"]["directory"], f"{namespace}/tiny")
        self.assertNotEqual(of_a["run"]["id"], of_b["run"]["id"])
        # Once more: the run of its own is complete.
        self.assertEqual(train("team-b")["message"], f"nothing to do: run {of_b['run']['id']} has 40 of 40 steps")
        # And at the same time.
        both = ["--set", "name=both", "--set", "parallel.data=1"]
        self.submit("-n", "team-a", *both, "--set", "training.train_iters=1000000")
        self.mtctl("-n", "team-a", "wait", "both", "--for", "state=RUNNING")
        self.submit("-n", "team-b", "--wait", *both)
        self.assertEqual(json.loads(self.mtctl("-n", "team-a", "-o", "json", "describe", "both").stdout)["state"], "RUNNING")
        self.mtctl("-n", "team-a", "kill", "both", "--yes")


class LostNodeTest(ServiceTest):
    autostart = False

    def test_limits_that_contradict_each_other_are_refused(self):
        def start(*flags):
            return subprocess.run([str(BIN / "mt-coordinator"), "--state", str(self.dir / "coordinator"), "--check-config", *flags],
                                  capture_output=True, text=True, timeout=30)
        make_store(self.dir / "coordinator")
        self.assertEqual(start(*SOON_LOST, "--phantom-after", "4").returncode, 0)
        for flags, words in ((("--suspect-after", "3"), "--suspect-after 3: must be at least 4 s"),
                             (("--suspect-after", "29"), "--lost-after 30: must be at least 31 s"),
                             (("--phantom-after", "3"), "--phantom-after 3: must be at least 4 s"),
                             (("--lost-after", "0"), "--lost-after")):
            self.assert_one_message(start(*flags), 64, words)

    def test_a_lost_node_keeps_its_job_until_it_is_declared_dead(self):
        self.start_coordinator(*SOON_LOST)
        self.start_worker("node-a", 1)
        self.start_worker("node-b", 1)
        self.wait_nodes(2)
        self.submit(*LONG)
        self.wait_step(3)
        refused = self.mtctl("node", "declare-dead", "node-a", "--yes", check=False)
        self.assert_one_message(refused, 3, "node-a")
        lost = self.job()["ranks"][1]["node"]
        self.workers[lost].send_signal(signal.SIGSTOP)
        self.wait_for("NodeUnreachable", lambda: any(
            c["type"] == "NodeUnreachable" for c in self.job().get("conditions", [])), limit=60)
        self.wait_for("the lost lease", lambda: any(
            n["name"] == lost and n["state"] == "NODE_LOST" for n in self.nodes()), limit=60)
        self.assertEqual(self.state(), "RUNNING")
        step = self.step()
        self.wait_step(step + 5)  # the ranks train on
        # Its slots are offered to nobody.
        self.submit("--set", "name=other", "--set", "parallel.data=1")
        self.wait_for("a reason to wait", lambda: self.job("other").get("message"))
        self.assertEqual(self.state("other"), "QUEUED")
        # Back: as if nothing had been.
        self.workers[lost].send_signal(signal.SIGCONT)
        self.wait_for("the condition's end", lambda: not any(
            c["type"] == "NodeUnreachable" for c in self.job().get("conditions", [])), limit=60)
        self.assertEqual(self.state(), "RUNNING")
        # Gone for good.
        self.workers[lost].send_signal(signal.SIGSTOP)
        self.wait_for("the lost lease", lambda: any(
            n["name"] == lost and n["state"] == "NODE_LOST" for n in self.nodes()), limit=60)
        self.assert_one_message(self.mtctl("node", "delete", lost, "--yes", check=False), 3, "holds ranks", "declare-dead")
        self.mtctl("node", "declare-dead", lost, "--yes", "--reason", "on fire")
        job = self.wait_state("FAILED")
        self.assertIn(lost, job["message"])
        self.mtctl("node", "delete", lost, "--yes", "--reason", "sold")
        self.assertNotIn(lost, [n["name"] for n in self.nodes()])
        self.workers[lost].send_signal(signal.SIGCONT)  # its rank is told to stop: a closed epoch
        self.wait_for("the last rank's end", lambda: not self.rank_processes(), limit=60)
        self.mtctl("wait", "other", timeout=120)


if __name__ == "__main__":
    unittest.main()
