"""A processor on which OpenBLAS computes wrong values: its node takes no job on CPU slots, and says why wherever somebody looks.

mt-rank's place is taken by a script that answers --check-blas as it does where one element is wrong, and else runs the program.
"""
import signal
import unittest

from harness import BIN
from service_harness import ServiceTest

FAULT = ("OpenBLAS 0.3.21 multiplies wrongly on this processor with its kernels for SkylakeX (sgemm m 3, n 5, k 7): start with "
         "OPENBLAS_CORETYPE=Haswell in the environment, or install a newer OpenBLAS")
RANK = """#!/bin/sh
if [ "$1" = --check-blas ] && [ -e "{wrong}" ]; then
  echo "{fault}"
  exit 71
fi
exec "{rank}" "$@"
"""


class WrongBlasTest(ServiceTest):
    autostart = False

    def test_its_slots_take_no_job_and_say_why(self):
        wrong, rank = self.dir / "wrong", self.dir / "mt-rank"
        wrong.touch()
        rank.write_text(RANK.format(wrong=wrong, fault=FAULT, rank=BIN / "mt-rank"))
        rank.chmod(0o755)
        self.start_coordinator()
        self.start_worker("node-a", 2, "--rank-binary", str(rank))
        self.wait_nodes(1)
        log = (self.dir / "node-a.log").read_text()
        self.assertIn("CPU slots take no job", log)
        self.assertIn(FAULT, log)
        self.assertRegex(self.mtctl("get", "nodes").stdout, r"(?m)^node-a +READY .* 0 of 2, 2 out of order ")
        self.assertIn(f"\nnode-a: 2 slots out of order: {FAULT}\n", self.mtctl("get", "nodes").stdout)
        why = f"2 out of order (node-a: {FAULT})"
        self.assertIn(why, self.submit().stdout)
        self.assertEqual(self.job()["state"], "QUEUED")
        self.assertIn(why, self.mtctl("describe", "tiny").stdout)
        # The way out, and a start.
        self.stop_worker("node-a", signal.SIGTERM)
        wrong.unlink()
        self.start_worker("node-a", 2)
        self.wait_state("SUCCEEDED")
        self.assertNotIn("out of order", self.mtctl("get", "nodes").stdout)


if __name__ == "__main__":
    unittest.main()
