"""The harness itself: nothing that a test does keeps its processes from being ended, and what had to be killed is told."""
import signal
import subprocess
import unittest

from service_harness import ServiceTest
from processes import alive_with  # found by what service_harness adds to the path


class Stuck(ServiceTest):
    """What the test below runs; it is not run by itself."""

    stop_seconds = 3

    def runTest(self):
        folders.append(self.dir)
        self.submit("--set", "training.train_iters=1000000", "--set", "checkpoint.every_iters=0")
        self.wait_step(2)
        # One that nobody but the sweep knows of, and that no word ends.
        stray = subprocess.Popen(["/bin/sh", "-c", "trap '' TERM; while :; do sleep 0.1; done", "sh", str(self.dir)])
        strays.append(stray)
        running.extend(alive_with(str(self.dir)))
        # SIGTERM does not reach one that stands still, and neither does a word of the next one reach its ranks.
        self.workers["node-a"].send_signal(signal.SIGSTOP)
        raise RuntimeError("the test itself fails")


folders, running, strays = [], [], []


class LeftProcessesTest(unittest.TestCase):
    def test_a_worker_that_will_not_end_leaves_nobody(self):
        result = unittest.TestResult()
        Stuck().run(result)
        self.addCleanup(lambda: [stray.wait() for stray in strays])
        self.addCleanup(lambda: [stray.kill() for stray in strays])
        self.assertGreaterEqual(len(running), 7, "a coordinator, a worker, two shims, two ranks, a stray")
        self.assertEqual(alive_with(str(folders[0])), [])
        self.assertFalse(folders[0].exists())
        self.assertIn("Stuck", folders[0].name, "the folder tells whose a process is")
        told = "\n".join(text for _, text in result.failures + result.errors)
        self.assertIn("the test itself fails", told)
        self.assertRegex(told, rf"{strays[0].pid} /bin/sh")
        self.assertIn("processes left running, now killed", told)
        self.assertRegex(told, r"node-a \(pid \d+\) did not end within 3 s of signal 15; it was killed")


# So that unittest, which runs what it finds in a module, does not run it.
def load_tests(loader, _tests, _pattern):
    return loader.loadTestsFromTestCase(LeftProcessesTest)


if __name__ == "__main__":
    unittest.main()
