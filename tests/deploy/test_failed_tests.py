"""What scripts/test.sh tells after CTest: of failed tests, of those that passed at their second try, and of programs that were left."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

SCRIPTS = pathlib.Path(os.environ["MT_SOURCE_DIR"]) / "scripts"
GOOGLETEST = """[ RUN      ] Suite.Bad
tests/some_test.cc:7: Failure
Expected: (resumed) > (0), actual: 0 vs 0
[  FAILED  ] Suite.Bad (3 ms)
 1 FAILED TEST"""
UNITTEST = """FAIL: test_form (test_fixtures.CheckpointTest.test_form) (fixtures/1)
Traceback (most recent call last):
AssertionError: Lists differ: ['factor 0.76355470'] != ['factor 0.76355471']
Ran 3 tests in 4.1 s
FAILED (failures=1)"""


class ScriptsTest(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="mtct-")).resolve()
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)

    def script(self, name, *args, code=0):
        done = subprocess.run([sys.executable, str(SCRIPTS / name), *map(str, args)], capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, code, done.stderr)
        return done.stdout


class FailedTestsTest(ScriptsTest):
    def results_of(self, tests, missing=None, skips=None, only="."):
        """name -> shell command; RESULTS.xml of a run of them."""
        folder = pathlib.Path(tempfile.mkdtemp(dir=self.dir))
        lines = []
        for number, (name, command) in enumerate(tests.items()):
            (folder / f"{number}.sh").write_text(command + "\n")
            lines.append(f'add_test("{name}" "/bin/sh" "{folder}/{number}.sh")\n')
        (folder / "CTestTestfile.cmake").write_text(
            "".join(lines) + (f'add_test("{missing}" "/nowhere/program")\n' if missing else "")
            + (f'set_tests_properties("{skips}" PROPERTIES SKIP_RETURN_CODE 77)\n' if skips else ""))
        subprocess.run(["ctest", "--test-dir", str(folder), "--output-junit", "results.xml", "-R", only], capture_output=True, timeout=60,
                       check=False)
        # As tests do that list those of the same folder: CTest's own log is empty afterwards.
        subprocess.run(["ctest", "--test-dir", str(folder), "-N"], capture_output=True, timeout=60, check=True)
        return folder / "results.xml"

    def failed(self, *args, code=0):
        return self.script("failed_tests.py", *args, code=code)

    def test_the_end_of_each_failed_test_is_printed(self):
        text = self.failed(self.results_of({"good": "echo fine", "script.Bad": "seq 100; echo why >&2; exit 3", "e2e.Silent": "exit 1",
                                            "Suite.Bad": f"cat <<'E'\n{GOOGLETEST}\nE\nexit 1",
                                            "fixtures.CheckpointTest": f"cat >&2 <<'E'\n{UNITTEST}\nE\nexit 1"}))
        self.assertIn("=== script.Bad failed", text)
        self.assertIn("\n99\n100\nwhy\n", text)
        self.assertNotIn("\n50\n", text)
        self.assertIn("=== e2e.Silent failed\n(it printed nothing)", text)
        self.assertIn("=== Suite.Bad failed\n" + GOOGLETEST, text)
        self.assertIn("=== fixtures.CheckpointTest failed\n" + UNITTEST, text)
        self.assertNotIn("fine", text)

    def test_a_program_that_is_not_there_is_a_failure(self):
        results = self.results_of({"e2e.A": "exit 1", "good": "true"}, missing="unit.Gone")
        self.assertIn("=== unit.Gone failed", self.failed(results))
        self.assertEqual(self.failed("--names", results).strip(), r"^e2e\.A$|^unit\.Gone$")

    def test_all_that_failed_are_listed(self):
        results = self.results_of({"good": "true", **{f"e2e.{i}": "exit 1" for i in range(9)}}, missing="unit.Gone")
        self.assertEqual(sorted(self.failed("--list", results).splitlines()),
                         [*(f"failed: e2e.{i}" for i in range(9)), "failed: unit.Gone"])

    def test_the_longest_are_told(self):
        results = self.results_of({"slow": "sleep 1.2", **{f"quick.{i}": "true" for i in range(12)}})
        lines = self.failed("--longest", results).splitlines()
        self.assertEqual(len(lines), 10)
        seconds, unit, name = lines[0].split()
        self.assertEqual((unit, name), ("s", "slow"))
        self.assertGreaterEqual(float(seconds), 1.2)
        self.assertLess(float(lines[1].split()[0]), float(seconds))

    def test_a_skipped_test_is_none(self):
        results = self.results_of({"e2e.A": "exit 1", "unit.Skips": "exit 77"}, skips="unit.Skips")
        self.assertEqual(self.failed("--names", results).strip(), r"^e2e\.A$")

    def test_many_failures_are_no_bad_luck(self):
        self.assertEqual(self.failed("--names", self.results_of({f"e2e.{i}": "exit 1" for i in range(9)})).strip(), "")

    def test_what_passed_when_it_was_run_again_is_told_with_its_first_words(self):
        first = self.results_of({"e2e.A": "echo unlucky; exit 1", "unit.B": "exit 1"})
        again = self.results_of({"e2e.A": "echo lucky"})
        text = self.failed("--flaky", first, again, code=1)
        self.assertIn("flaky: e2e.A, passed at try 2; the end of try 1:\nunlucky\n", text)
        self.assertNotIn("unit.B", text)
        self.assertNotIn("lucky\n", text.replace("unlucky", ""))
        only = self.results_of({"e2e.A": "echo unlucky; exit 1"})
        self.failed("--flaky", only, again)
        self.assertEqual(self.failed("--flaky", only, self.results_of({"e2e.A": "exit 1"}), code=1), "")
        self.assertEqual(self.failed("--flaky", only, self.dir / "no such file.xml", code=1), "")


class LeftProgramsTest(ScriptsTest):
    def start(self, **env):
        program = self.dir / "bin/sleep"
        program.parent.mkdir(exist_ok=True)
        if not program.exists():
            shutil.copy("/bin/sleep", program)
        process = subprocess.Popen([str(program), "600.25"], env=dict(os.environ, **env))
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def test_what_a_run_has_left_is_named_and_ended(self):
        mine, other = self.start(MT_TEST_RUN="one"), self.start(MT_TEST_RUN="two")
        text = self.script("left_programs.py", self.dir, "one", "0.2", code=1)
        self.assertIn(f"{mine.pid} {self.dir}/bin/sleep 600.25", text)
        self.assertEqual(mine.wait(timeout=10), -9)
        self.assertIsNone(other.poll())
        self.assertEqual(self.script("left_programs.py", self.dir, "one", "0.2"), "")
        self.assertEqual(self.script("left_programs.py", self.dir / "elsewhere", "two", "0.2"), "")
        self.assertIsNone(other.poll())


if __name__ == "__main__":
    unittest.main()
