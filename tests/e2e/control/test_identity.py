"""Who a node is: a second host that starts a worker under the name of the first, on the real programs.

The other host is a mount namespace with a boot id of its own, which needs root. Where root cannot make one, the test fails.
"""
import json
import signal
import subprocess
import unittest

from harness import BIN, needs_root
from service_harness import ServiceTest, free_port

LONG = ("--set", "training.train_iters=1000000", "--set", "checkpoint.every_iters=0")
BOOT_ID = "11111111-2222-4333-8444-555555555555"


@needs_root("the boot id is another one")
class IdentityTest(ServiceTest):
    def start_twin(self, label="twin", state=None):
        """A worker of the name node-a, as from another host: other boot id, other state folder (a copy: `state`)."""
        boot = self.dir / f"{label}-boot-id"
        boot.write_text(BOOT_ID + "\n")
        script = f'mount --bind {boot} /proc/sys/kernel/random/boot_id && exec "$@"'
        log = open(self.dir / f"{label}.log", "ab")
        self.workers[label] = subprocess.Popen(
            ["unshare", "--mount", "--uts", "sh", "-c", script, "sh", str(BIN / "mt-worker"),
             "--coordinator", f"127.0.0.1:{self.port}", "--node", "node-a", "--cpu-slots", "2", "--gpus", "none",
             "--state", str(state or self.dir / label), "--data-root", str(self.dir / "data"),
             "--checkpoint-root", str(self.dir / "ckpt"), "--log-root", str(self.dir / f"{label}-logs"),
             "--http-listen", f"127.0.0.1:{free_port()}"],
            stderr=log, stdout=log, env=self.env, stdin=subprocess.DEVNULL)
        log.close()
        self.wait_for("the twin's start", lambda: "mt-worker has started" in self.log(label), limit=30)

    def log(self, label):
        return (self.dir / f"{label}.log").read_text()

    def node_events(self, kind):
        events = json.loads(self.mtctl("-o", "json", "get", "events").stdout).get("events", [])
        return [e for e in events if e["type"] == kind]

    def wait_refusals(self, count):
        """So often more was somebody refused."""
        before = self.log("coordinator").count("registration refused")
        self.wait_for(f"{count} more refusals", lambda: self.log("coordinator").count("registration refused") >= before + count)

    def test_a_second_host_does_not_take_a_name_over(self):
        self.submit(*LONG)
        self.wait_step(3)
        epoch = self.job()["epoch"]
        registrations = self.log("coordinator").count("worker registered")
        self.start_twin()
        self.wait_for("the twin's refusal", lambda: "registration refused" in self.log("coordinator") or
                      self.log("coordinator").count("worker registered") > registrations, limit=30)
        self.wait_refusals(3)  # it tries again and again
        job = self.job()
        self.assertEqual((job["state"], job["epoch"]), ("RUNNING", epoch), job.get("message"))
        self.assertEqual(self.log("coordinator").count("worker registered"), registrations, "nobody else registered")
        self.wait_step(self.step() + 3)
        # The twin says why and what to do; so does the coordinator, once.
        self.assertRegex(self.log("twin"), r"refuses this worker.*--node")
        refused = self.node_events("NodeClaimRefused")
        self.assertEqual(len(refused), 1, refused)
        self.assertEqual(refused[0]["node"], "node-a")
        self.assertIn(BOOT_ID, self.nodes()[0]["refused_claim"])
        self.assertIn("claim refused", self.mtctl("get", "nodes").stdout)
        self.assertIn("Refused claim", self.mtctl("describe", "node", "node-a").stdout)

    def test_a_name_is_not_taken_over_while_its_holder_connects_anew(self):
        self.submit(*LONG)
        self.wait_step(3)
        self.start_twin()
        # The holder is cut off for less than L1 says, several times; each time the twin is there and the holder is not. L1 is a minute:
        # how long the twin takes until it has been refused is the machine's load.
        for _ in range(3):
            self.kill_coordinator()
            self.workers["node-a"].send_signal(signal.SIGSTOP)
            self.start_coordinator("--suspect-after", "60", "--lost-after", "90")
            self.wait_api()
            self.wait_refusals(1)
            self.workers["node-a"].send_signal(signal.SIGCONT)
            self.wait_for("node-a", lambda: "connected" if self.state() == "RUNNING" else None, limit=30)
            step = self.step()
            self.wait_step(step + 3)
        self.assertEqual(self.job()["state"], "RUNNING")
        self.assertNotIn("registered with the coordinator", self.log("twin"))

    def test_a_host_installed_anew_is_readmitted(self):
        self.wait_for("the secret", lambda: list((self.dir / "node-a").glob("identity/*")), limit=20)
        self.stop_worker("node-a", signal.SIGTERM)
        (self.dir / "node-a").rename(self.dir / "node-a.old")
        self.start_worker("node-a", 2)
        self.wait_for("the refusal", lambda: "mtctl node readmit" in self.log("node-a"), limit=30)
        self.mtctl("node", "readmit", "node-a", "--reason", "new disk")
        self.wait_for("node-a", lambda: self.log("node-a").count("registered with the coordinator") == 2, limit=30)
        self.submit("--follow")
        self.assertNotIn("claim refused", self.mtctl("get", "nodes").stdout)
        self.assertEqual(self.node_events("NodeReadmitted")[0]["reason"], "new disk")
        # The name is the new installation's from now on: a copy of the old state folder does not have it.
        self.stop_worker("node-a", signal.SIGTERM)
        self.start_twin("old", state=self.dir / "node-a.old")
        self.wait_for("the refusal", lambda: "mtctl node readmit" in self.log("old"), limit=30)


if __name__ == "__main__":
    unittest.main()
