"""What a user is told where nobody knows: how a rank ended without its shim, and whom a verb waits for."""
import os
import re
import signal
import unittest

from harness import WAITING
from service_harness import SOON_LOST, ServiceTest

LONG = ("--set", "training.train_iters=1000000", "--set", "checkpoint.every_iters=0")


class UnknownExitTest(ServiceTest):
    def test_a_rank_that_ends_without_its_shim_has_no_exit_code(self):
        self.submit(*LONG)
        self.wait_step(3)
        victim = next(r["pid"] for r in self.job()["ranks"] if r["rank"] == 1)
        with open(f"/proc/{victim}/stat") as f:
            shim = int(f.read().rsplit(")", 1)[1].split()[1])
        os.kill(shim, signal.SIGKILL)
        self.wait_for("the agent's word of it",
                      lambda: "a rank goes on without its mt-shim" in (self.dir / "node-a.log").read_text())
        os.kill(victim, signal.SIGKILL)
        job = self.wait_state("FAILED")
        self.assertRegex(job["message"], r"rank 1 on node node-a: how it ended is not known: its mt-shim ended \(signal 9\)")
        self.assertNotIn("code 0", job["message"])
        self.assertEqual((job["cause"], job["failed_rank"]), ("INTERNAL", 1))
        rank = next(r for r in job["ranks"] if r["rank"] == 1)
        self.assertTrue(rank["exit_unknown"])
        self.assertEqual(rank["state"], "FAULTED")
        self.assertRegex(self.mtctl("describe", "tiny").stdout, r"(?m)^ +1 .* FAULTED +\d+ +unknown$")


class LostNodeWaitTest(ServiceTest):
    autostart = False

    def tearDown(self):
        self.workers["node-b"].send_signal(signal.SIGCONT)  # one that stands still cannot be ended in good order
        super().tearDown()

    def operation(self):
        return next(o for o in self.operations() if not o["done"])

    def test_a_verb_that_waits_for_a_lost_node_names_it_at_once(self):
        self.start_coordinator(*SOON_LOST)
        for name in ("node-a", "node-b"):
            self.start_worker(name, 1)
        self.wait_nodes(2)
        self.submit(*LONG)
        self.wait_step(3)
        self.workers["node-b"].send_signal(signal.SIGSTOP)
        self.wait_for("the lost lease", lambda: any(
            n["name"] == "node-b" and n["state"] == "NODE_LOST" for n in self.nodes()), limit=90)
        lost = (r"node-b is lost since \d{4}-\S+Z: its ranks cannot be {} until it is back; mtctl node declare-dead node-b "
                "if it is off")
        pause = self.mtctl("-o", "json", "pause", "tiny", "--hold")
        self.assertRegex(pause.stdout, lost.replace("{}", "held"))
        kill = self.start_mtctl("kill", "tiny", "--yes")
        try:
            # Before it ends: only the node can end it.
            line = next((said for said in kill.stderr if not said.startswith(WAITING)), "")
            self.assertRegex(line, "^kill: ending the processes; " + lost.replace("{}", "killed"))
            self.assertIsNone(kill.poll())
            operation = self.operation()
            self.assertEqual(operation["lost_nodes"], ["node-b"])
            self.assertRegex(self.mtctl("get", "operations", "tiny").stdout, lost.replace("{}", "killed"))
            self.mtctl("node", "declare-dead", "node-b", "--yes")
            self.assertEqual(kill.wait(timeout=60), 0)
        finally:
            kill.kill()
            kill.communicate()
        self.assertEqual(self.state(), "CANCELLED")
        self.assertFalse(re.search("lost since", self.mtctl("get", "operations", "tiny").stdout))
        self.workers["node-b"].send_signal(signal.SIGCONT)
        self.wait_for("the last rank's end", lambda: not self.rank_processes(), limit=60)


if __name__ == "__main__":
    unittest.main()
