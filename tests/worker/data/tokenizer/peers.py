"""What the tests against other programs share. Each test_peers*.py holds a PeersTest of this kind and is a CTest entry of its own. Where
PyPI or a program is missing a test is skipped (tests/required.py); the goldens of bpe_test.cc are checked always.
"""
import array
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path += [str(HERE), str(HERE.parents[2]), str(HERE.parents[2] / "deploy")]
import pypi_packages  # noqa: E402

MTCTL = pathlib.Path(os.environ["MT_BIN"]) / "mtctl"
LONG = bool(os.environ.get("MT_LONG_TESTS"))
MB = 1_000_000


def run(*command, **options):
    return subprocess.run([str(word) for word in command], check=True, capture_output=True, timeout=900, **options).stdout


def numbers(text):
    return [int(word) for word in text.split()]


class Peers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="mt-peers-"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)

    def write(self, name, data):
        (self.folder / name).write_bytes(data)
        return self.folder / name

    def run_peer(self, script, *args):
        """A Python program of this folder with the packages of tests/deploy/pypi/tokenizers.txt; its output."""
        env = pypi_packages.environment(os.environ["MT_BINARY_DIR"], "tokenizers")
        return run(sys.executable, HERE / script, *args, env=env)

    def peer(self, program, text, *more):
        """The ids that a package of PyPI gives a text."""
        self.run_peer("peer_ids.py", program, text, self.folder / "ids", *more)
        return array.array("i", (self.folder / "ids").read_bytes()).tolist()

    def same(self, ours, theirs):
        at = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
        self.assertEqual(ours[at:at + 8], theirs[at:at + 8], f"ids differ from number {at} on")
