"""scripts/test.sh itself, with stand-ins for cmake, ctest and the scripts that it starts: what it forgives, and what it tells last."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

SCRIPTS = pathlib.Path(os.environ["MT_SOURCE_DIR"]) / "scripts"
# Writes the results that the test has prepared for this call, the next of the folder's list; 8 where a test failed, as CTest does.
CTEST = """#!/bin/sh
folder=$2
case "$*" in
  *--show-only*) cat "${FAKE%/*}/tests.json"; exit ;;
  *build/cuda-release/soak*)
    until [ -s "$folder/load/synced" ]; do sleep 0.1; done
    for pid in $(pgrep -f "soak.py load $folder"); do [ "$(readlink "/proc/$pid/cwd")" = "$(pwd -P)" ] && echo "$pid"; done > "$FAKE/load"
esac
file=$(echo "$*" | grep -o '[a-zA-Z]*.xml')
mkdir -p "$folder"
number=$(ls "$FAKE" | grep -c '^ran')
echo "$* ${OPENBLAS_CORETYPE:-}${MT_TEST_THREADS:-}" > "$FAKE/ran$number"
status=$(sed -n "$((number + 1))p" "$FAKE/outcomes")
echo "<s><testcase name='e2e.A' time='2.5' status='${status:-run}'><system-out>words of A</system-out></testcase></s>" > "$folder/$file"
[ "${status:-run}" = run ] || exit 8
"""
LINT = """printf '300.5 clang-tidy build/lint/joined/00.cc\\n1.5 names\\n' > build/lint.times
exit ${LINT:-0}
"""
# Finds a program in the looks that the test has listed.
LEFT = """import os, pathlib, sys
fake = pathlib.Path(os.environ["FAKE"])
looks = len(list(fake.glob("look*")))
(fake / f"look{looks}").touch()
if str(looks) in (fake / "left").read_text().split():
    sys.exit("left running: 1 /mt-rank")
"""


# A program of GoogleTest whose test of the name in $BAD ends as the words of $HOW say.
FUZZER = """#!/bin/sh
test=${1#--gtest_filter=}
echo "seed 7: MT_FUZZ_SEED=7 repeats these inputs"
case "$test:$HOW" in
  *"$BAD:crash") echo "AddressSanitizer: heap-buffer-overflow"; exit 1 ;;
  *"$BAD:gone") echo "[  PASSED  ] 0 tests."; exit 0 ;;
esac
echo "$MT_FUZZ_SECONDS rounds of seed 7"
echo "[  PASSED  ] 1 test."
"""


class TestShTest(unittest.TestCase):
    def setUp(self):
        self.dir = pathlib.Path(tempfile.mkdtemp(prefix="mttest-"))
        self.addCleanup(shutil.rmtree, self.dir, ignore_errors=True)
        scripts = self.dir / "scripts"
        scripts.mkdir()
        (self.dir / "bin").mkdir()
        (self.dir / "bin/python3").symlink_to(sys.executable)  # there may be another one, which takes ten times as long to begin
        for name in ("test.sh", "failed_tests.py", "soak.py", "costly_steps.py"):
            shutil.copy(SCRIPTS / name, scripts)
        for path, text in {"scripts/setup.sh": "exit 0\n", "scripts/preset.sh": "echo cuda-release\n", "scripts/lint.sh": LINT,
                           "scripts/fuzz.sh": 'echo "$* ${MT_FUZZ_SECONDS:-}" > "$FAKE/fuzz"; exit ${FUZZ:-0}\n',
                           "scripts/left_programs.py": LEFT, "scripts/processors.py": "print('Haswell SkylakeX')\n",
                           "bin/cmake": "#!/bin/sh\nexit 0\n", "bin/ctest": CTEST}.items():
            (self.dir / path).write_text(text)
            (self.dir / path).chmod(0o755)

    def run_it(self, *args, outcomes=(), left=(), code=0, **env):
        """outcomes: of the calls of CTest in turn, then `run`; left: numbers of the looks that find a program."""
        fake = pathlib.Path(tempfile.mkdtemp(dir=self.dir))
        (fake / "outcomes").write_text("".join(f"{word}\n" for word in outcomes))
        (fake / "left").write_text(" ".join(map(str, left)))
        self.fake = fake
        done = subprocess.run(["bash", str(self.dir / "scripts/test.sh"), *args], capture_output=True, text=True, timeout=60, check=False,
                              env=dict(os.environ, PATH=f"{self.dir}/bin:{os.environ['PATH']}", FAKE=str(fake), **env))
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.fuzzed = (fake / "fuzz").read_text().split() if (fake / "fuzz").exists() else []
        self.calls = [path.read_text() for path in sorted(fake.glob("ran*"), key=lambda path: int(path.name[3:]))]
        return done.stdout

    def test_all_passed(self):
        text = self.run_it()
        self.assertEqual(len(self.calls), 3, "all tests, then a few on two other processors")
        cores = int(subprocess.run(["nproc"], capture_output=True, text=True, check=True).stdout)
        self.assertIn(f" -j {cores + 1} --resource-spec-file {self.dir}/build/clusters.json ", self.calls[0])
        clusters = json.loads((self.dir / "build/clusters.json").read_text())["local"][0]["clusters"]
        self.assertEqual([one["slots"] for one in clusters], [cores], "no more clusters than cores")
        self.assertEqual([call.split()[-1] for call in self.calls[1:]], ["Haswell", "SkylakeX2"],
                         "the second with ranks of two threads")
        self.assertIn("The longest tests of cuda-release:\n     2.5 s  e2e.A\n", text)
        self.assertRegex(text, r"\d s  build of cuda-release\n +\d+ s  tests of cuda-release\n +\d+ s  tests of cuda-release, Haswell\n"
                         r" +\d+ s  tests of cuda-release, SkylakeX, 2 threads\n")
        self.assertNotIn("failed", text)

    def test_a_test_that_passes_at_its_second_try_is_told(self):
        text = self.run_it(outcomes=["fail", "run"])
        self.assertIn("-L ^(e2e|fault|kills)$", self.calls[1], "of no other kind")
        self.assertTrue(text.rstrip().endswith("flaky: e2e.A, passed at try 2; the end of try 1:\nwords of A"), text)
        self.assertNotIn("failed: ", text)

    def test_a_test_that_fails_twice_fails(self):
        text = self.run_it(outcomes=["fail", "fail"], code=8)
        self.assertIn("tests of cuda-release: failed\nfailed: e2e.A\n", text)
        self.assertEqual(len(self.calls), 2)

    def test_a_program_that_was_left_is_forgiven_by_no_second_try(self):
        self.run_it(outcomes=["fail", "run"], left=[0], code=8)
        self.assertEqual(len(self.calls), 1)
        self.run_it(outcomes=["fail", "run"], left=[1], code=8)
        self.run_it(left=[0], code=1)

    def test_a_failure_on_another_processor_is_one_and_the_rest_is_run(self):
        text = self.run_it(outcomes=["run", "fail", "fail"], code=1)
        self.assertEqual(len(self.calls), 4, "twice on the first, once on the second")
        self.assertIn("failed: e2e.A under Haswell\n", text)

    def test_each_processor_is_tried_with_one_thread_a_rank_and_with_two(self):
        text = self.run_it("--full=processors", outcomes=["run"] * 4 + ["fail"], code=1)
        self.assertEqual([call.split()[-1] for call in self.calls],
                         ["Haswell"] * 4 + ["Haswell2"] * 4 + ["SkylakeX"] * 4 + ["SkylakeX2"] * 4, "no second try, and all are run")
        self.assertIn("failed: e2e.A under Haswell, 2 threads\n", text)

    def test_a_round_beside_other_work_is_recorded_with_the_failures_of_all_rounds(self):
        (self.dir / "tests.json").write_text(json.dumps({"tests": [
            {"name": "e2e.A", "command": ["/bin/sh", "-c", "echo a; b"], "properties": [
                {"name": "TIMEOUT", "value": 30.0}, {"name": "LABELS", "value": ["e2e", "kills"]}, {"name": "WILL_FAIL", "value": False},
                {"name": "RESOURCE_GROUPS", "value": [{"requirements": [{".type": "clusters", "slots": 1}]}]}]},
            {"name": "Suite.B/1  # GetParam() = \"x\"", "command": ["/bin/true"]}]}))
        self.run_it("--full=soak", outcomes=["fail"], code=1)
        self.assertRegex(self.calls[0], "--test-dir build/cuda-release/soak .* -j 4 --stop-time [0-9:]{8} ")
        self.assertEqual(len(self.calls), 1, "no second try")
        tests = (self.dir / "build/cuda-release/soak/CTestTestfile.cmake").read_text()
        self.assertIn("add_test([==[e2e.A]==] [==[/bin/sh]==] [==[-c]==] [==[echo a; b]==])", tests)
        self.assertIn("TIMEOUT [==[120.0]==]\n  LABELS [==[e2e;kills]==]\n  WILL_FAIL [==[OFF]==])", tests)
        self.assertIn('set_tests_properties([==[Suite.B/1  # GetParam() = "x"]==] PROPERTIES\n  TIMEOUT [==[6000]==])', tests)
        pids = (self.fake / "load").read_text().split()
        self.assertEqual(len(pids), 4, "two busy loops, one that syncs, and what has begun them")
        # Each is killed as what has begun it ends, and the one that syncs is gone when its sync is over.
        give_up = time.monotonic() + 60
        while any(map(self.runs, pids)) and time.monotonic() < give_up:
            time.sleep(0.1)
        self.assertEqual([pid for pid in pids if self.runs(pid)], [], "they are ended with the round")
        self.run_it("--full=soak", outcomes=["run"])
        self.run_it("--full=soak", outcomes=["fail"], code=1)
        said = re.sub(r"\d{4}-\d\d-\d\d, [^,]*, \d+ min", "WHEN", (self.dir / "build/soak.txt").read_text())
        self.assertEqual(said, "round 1: WHEN, 1 of 2 tests, 1 failed\nfailed: e2e.A, in 1 of 1 rounds\n"
                               "round 2: WHEN, 1 of 2 tests, 0 failed\n"
                               "round 3: WHEN, 1 of 2 tests, 1 failed\nfailed: e2e.A, in 2 of 3 rounds\n")

    @staticmethod
    def runs(pid):
        """It is there, and no zombie that waits to be collected."""
        try:
            return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
        except OSError:
            return False

    def test_the_checks_go_on_with_the_stages_of_before(self):
        self.run_it()
        text = self.run_it("--checks", code=3, LINT="3")
        self.assertIn("  build of cuda-release\n", text)
        self.assertTrue(text.rstrip().endswith("lint: failed"), text)

    def test_the_checks_run_the_fuzzers_for_some_time(self):
        for option, given, seconds in (("--checks", {}, "30"), ("--full=checks", {}, "300"), ("--checks", {"MT_FUZZ_SECONDS": "5"}, "5")):
            text = self.run_it(option, **given)
            self.assertEqual(self.fuzzed, ["build/asan-ubsan", seconds], "and the tests' own runs are told nothing")
            self.assertRegex(text, r"\d s  tests of asan-ubsan\n +\d+ s  fuzzers\n")
        text = self.run_it("--checks", code=1, FUZZ="1")
        self.assertTrue(text.rstrip().endswith("fuzzers: failed\nfailed: fuzzers of asan-ubsan"), text)
        self.run_it()
        self.assertEqual(self.fuzzed, [])

    def test_the_checks_tell_what_took_longest_of_all_that_they_do(self):
        log = self.dir / "build/asan-ubsan/.ninja_log"
        log.parent.mkdir(parents=True)
        later = time.time_ns() + 10**12
        log.write_text("# ninja log v5\n" + "".join(f"100\t{100 + seconds * 1000}\t{when}\t{name}\thash\n" for seconds, when, name in [
            (400, 1, "of an earlier build"), (50, later, "client/a.o"), *((2, later, f"{number}.o") for number in range(9))]))
        text = self.run_it("--checks")
        told = text.split("The costliest steps of the checks:\n")[1].split("\n\n")[0].splitlines()
        self.assertEqual(told[:4], ["   300.5 s  lint: clang-tidy build/lint/joined/00.cc", "    50.0 s  build of asan-ubsan: client/a.o",
                                    "     2.5 s  tests of tsan: e2e.A", "     2.5 s  tests of asan-ubsan: e2e.A"])
        self.assertEqual(len(told), 10)
        self.assertIn("-LE e2e|numeric|fault|gpu|lint", self.calls[0])


class FuzzShTest(unittest.TestCase):
    PROGRAMS = ("mt_data_token_files_test", "mt_data_prepare_test", "mt_tokenizer_fuzz_test", "mt_hf_test",
                "mt_llmc_test")

    def fuzz(self, bad="", how="", programs=PROGRAMS):
        with tempfile.TemporaryDirectory(prefix="mttest-") as build:
            (pathlib.Path(build) / "bin").mkdir()
            for program in programs:
                path = pathlib.Path(build) / "bin" / program
                path.write_text(FUZZER)
                path.chmod(0o755)
            return subprocess.run(["bash", str(SCRIPTS / "fuzz.sh"), build, "3"], capture_output=True, text=True, timeout=60, check=False,
                                  env=dict(os.environ, BAD=bad, HOW=how))

    def test_all_of_them_run_and_what_fails_is_told(self):
        done = self.fuzz()
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        names = [line.split()[0] for line in done.stdout.splitlines()]
        self.assertIn("IdxFuzzTest.DamagedFilesAreRefusedOrRead", names)
        self.assertEqual(done.stdout.count("3 rounds of seed 7"), len(names))
        done = self.fuzz(bad="HfFiles", how="crash")
        self.assertEqual(done.returncode, 1)
        self.assertIn("TokenizerFuzzTest.HfFiles failed (status 1)", done.stdout)
        self.assertIn("MT_FUZZ_SEED=7", done.stdout)
        self.assertIn("AddressSanitizer: heap-buffer-overflow", done.stdout)
        self.assertIn("TokenizerFuzzTest.Records", done.stdout, "the others go on")
        self.assertEqual(self.fuzz(bad="Records", how="gone").returncode, 1, "a test that is no more")
        self.assertEqual(self.fuzz(programs=("mt_data_prepare_test",)).returncode, 1, "a program that was not built")


if __name__ == "__main__":
    unittest.main()
