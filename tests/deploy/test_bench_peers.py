"""scripts/bench_peers.py with commands that print what they are told: order of the runs, ratios, verdicts."""
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPT = Path(__file__).resolve().parents[2] / "scripts/bench_peers.py"


class BenchPeersTest(unittest.TestCase):
    def setUp(self):
        self.dir = tempfile.TemporaryDirectory()
        self.addCleanup(self.dir.cleanup)
        self.order = Path(self.dir.name) / "order"
        # Prints the next of its medians and notes that it ran.
        self.program = Path(self.dir.name) / "program.py"
        self.program.write_text(
            "import pathlib, sys\n"
            "name, medians = sys.argv[1], sys.argv[2].split(',')\n"
            f"order = pathlib.Path({str(self.order)!r})\n"
            "ran = order.read_text().split() if order.exists() else []\n"
            "order.write_text(' '.join(ran + [name]))\n"
            "print('noise 1.0 ms\\nstep   median', medians[ran.count(name)], 'ms, p95 99 ms')\n")

    def command(self, name, medians):
        return f"{sys.executable} {self.program} {name} {medians}"

    def compare(self, *args):
        return subprocess.run([sys.executable, str(SCRIPT), *args], capture_output=True, text=True, timeout=60)

    def test_pairs_are_interleaved_and_the_lowest_but_one_counts(self):
        done = self.compare("--ours", self.command("a", "10,10,10,10,10"), "--peer", self.command("b", "9,11,12,10.5,13"), "--pairs", "5",
                            "--must", "1.05")
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(self.order.read_text(), "a b b a a b b a a b")
        self.assertIn("pair 1: ours 10.000 ms, peer 9.000 ms, ratio 0.9000", done.stdout)
        self.assertIn("lowest but one 1.0500, must 1.05: reached", done.stdout)

    def test_below_the_bar_and_of_few_pairs_the_lowest(self):
        done = self.compare("--ours", self.command("a", "10,10"), "--peer", self.command("b", "10.2,12"), "--pairs", "2", "--must", "1.03")
        self.assertEqual(done.returncode, 1)
        self.assertIn("lowest 1.0200, must 1.03: NOT reached", done.stdout)

    def test_the_faster_of_several_peers_counts(self):
        done = self.compare("--ours", self.command("a", "10"), "--peer", self.command("b", "12"), "--peer", self.command("c", "11"),
                            "--pairs", "1")
        self.assertEqual(done.returncode, 0)
        self.assertIn("ratio 1.1000", done.stdout)

    def test_a_run_without_a_median_is_a_failure(self):
        done = self.compare("--ours", self.command("a", "10"), "--peer", sys.executable + """ -c "print('hello')\"""", "--pairs", "1")
        self.assertEqual(done.returncode, 2)
        self.assertIn("peer-1: no median", done.stderr)
        self.assertIn("hello", done.stderr)
        self.assertEqual(self.compare("--ours", "mt-no-such-program", "--peer", "true", "--pairs", "1").returncode, 2)
