"""The coordinator's process is stopped for longer than a lease, and goes on: it counts nobody's silence but its own.

34 s, which is more than it takes until a worker is lost: only with `scripts/test.sh --full` (MT_LONG_TESTS=1). The short form, with
a clock of its own and twenty nodes, is tests/daemon/core/own_time_test.cc.
"""
import json
import os
import signal
import time
import unittest

from service_harness import ServiceTest

FROZEN_SECONDS = 34


@unittest.skipUnless(os.environ.get("MT_LONG_TESTS"), "stands still for 34 s: only with MT_LONG_TESTS=1 (scripts/test.sh --full)")
class CoordinatorFreezeTest(ServiceTest):
    slots = 2

    def test_nobody_is_lost(self):
        self.submit("--set", "training.train_iters=1000000", "--set", "checkpoint.every_iters=0", "--set", "parallel.data=1")
        self.wait_step(5)
        pids = self.rank_processes()
        self.coordinator.send_signal(signal.SIGSTOP)
        time.sleep(FROZEN_SECONDS)
        self.coordinator.send_signal(signal.SIGCONT)
        self.wait_api()
        step = self.step()
        self.wait_step(step + 5)
        events = json.loads(self.mtctl("-o", "json", "get", "events").stdout)["events"]
        self.assertEqual([e for e in events if e["type"] == "NodeLost"], [])
        self.assertEqual(self.job()["state"], "RUNNING")
        self.assertEqual(self.rank_processes(), pids)
        self.losses()


if __name__ == "__main__":
    unittest.main()
