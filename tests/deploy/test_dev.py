"""scripts/dev.sh: which programs and tests a change affects, on the tree's own build files, and what counts as changed."""
import contextlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

from install_tree import BUILD, SOURCE

sys.path.insert(0, str(SOURCE / "scripts"))
import affected  # noqa: E402
import dev  # noqa: E402


def output_of(*command, cwd):
    return subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True).stdout


class StatementsTest(unittest.TestCase):
    def test_reads_what_ninja_reads(self):
        text = "rule CXX\n  command = c++\nbuild a.o | a.d: CXX /s/a.cc | a.gch $\n  b$ c.h || late.h\n  FLAGS = -O2\nbuild x$:y: phony\n"
        self.assertEqual(list(affected.statements_of(text)),
                         [(["a.o", "a.d"], "CXX", ["/s/a.cc", "a.gch", "b c.h"], ["late.h"]), (["x:y"], "phony", [], [])])


class AffectedTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        listed = output_of("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=SOURCE).splitlines()
        cls.files = [path for path in listed if (SOURCE / path).is_file()]
        cls.tests = json.loads(output_of("ctest", "--test-dir", str(BUILD), "--show-only=json-v1", cwd=SOURCE))["tests"]
        cls.graph = affected.Graph(SOURCE, BUILD, cls.files)

    def select(self, *changed):
        return affected.Selection(self.graph, list(changed), self.tests)

    def file(self, end):
        """The one file with this end, wherever its folder is."""
        found = [path for path in self.files if path.endswith(end) and not path.startswith("tests/")]
        self.assertEqual(len(found), 1, found)
        return found[0]

    def test_a_kernel_affects_those_who_compute(self):
        selection = self.select("kernels/cpu/update.cc")
        self.assertLessEqual({"mt_kernels_test", "mt_optim_test", "mt_train_test", "mt_parity_test"}, set(selection.programs))
        for other in ("mt_daemon_test", "mt_client_test", "mt_agent_test", "mt_data_test", "mt_http_test", "mt_base_test"):
            self.assertNotIn(other, selection.programs)
        self.assertIn("e2e.TrainingTest", selection.single, "ranks run it")
        self.assertIn("mt-rank", selection.single["e2e.TrainingTest"])
        self.assertNotIn("deploy.DocsTest", selection.single, "mtctl does not compute")
        self.assertIn("methods", selection.single)

    def test_a_header_affects_who_includes_it_through_others(self):
        direct = self.select("kernels/cpu/update.cc").programs
        self.assertIn("mt_daemon_test", self.select("common/base/status.h").programs)
        self.assertLess(set(direct), set(self.select("common/base/status.h").programs))

    def test_a_page_affects_checks_of_documents_only(self):
        selection = self.select("README.md")
        self.assertEqual((set(selection.products), set(selection.programs)), (set(), set()))
        self.assertEqual(set(selection.single), {"deploy.DocsTest", "retired_names"})
        self.assertEqual({os.path.basename(path) for path in selection.builds}, {"mtctl"}, "which the check asks for its verbs")

    def test_a_schema_affects_who_includes_what_is_made_of_it(self):
        programs = self.select("proto/megatrain/v1/worker.proto").programs
        self.assertLessEqual({"mt_daemon_test", "mt_agent_test"}, set(programs))
        self.assertNotIn("mt_kernels_test", programs)
        users = self.graph.users[str(SOURCE / "proto/megatrain/v1/worker.proto")]
        self.assertTrue(any(path.endswith("_test.cc") for path in users), "by the generated header's name")
        self.assertNotIn("mt_kernels_test", self.select("proto/megatrain/v1/job.proto").programs, "the compiled headers are no test's")

    def test_a_program_affects_the_test_that_starts_it(self):
        programs = self.select(self.file("shim/supervisor.cc")).programs
        self.assertLessEqual({"mt_agent_test", "mt_shim_test"}, set(programs))
        self.assertNotIn("mt_train_test", programs)

    def test_data_affects_the_sources_that_name_it(self):
        self.assertEqual(set(self.select("tests/golden/gpt2_torch.safetensors").programs), {"mt_model_test", "mt_scores_test"})

    def test_a_list_of_sources_affects_what_it_builds(self):
        selection = self.select("kernels/cpu/loops/CMakeLists.txt")
        self.assertIn("mt_kernels_test", selection.programs)
        self.assertIn("kernel_loops_keep_to_themselves", selection.single, "a command on a built file")
        self.assertNotIn("mt_daemon_test", selection.programs)
        everything = {test["name"] for test in self.tests if affected.program_of(test) and not affected.script_of(test)}
        selection = self.select("CMakeLists.txt")
        picked = {test["name"] for test in self.tests if selection.picks(test)}
        self.assertLessEqual(everything, picked)

    def test_a_python_file_affects_those_who_import_it(self):
        selection = self.select("tests/e2e/service_harness.py")
        self.assertIn("e2e.PauseTest", selection.single)
        self.assertNotIn("e2e.TrainingTest", selection.single)
        self.assertEqual(selection.programs, {})
        self.assertIn("mt-shim", {os.path.basename(path) for path in selection.builds}, "a worker starts it")

    def test_nothing_is_affected_by_a_file_that_nothing_reads(self):
        selection = self.select(".editor" + "config")  # written so that this file does not name it
        self.assertEqual((selection.programs, selection.single, selection.builds), ({}, {}, set()))


class ChangedTest(unittest.TestCase):
    def test_counts_commits_edits_new_and_deleted_files(self):
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
            root = pathlib.Path(folder)
            stack.enter_context(mock.patch.object(dev, "ROOT", root))

            def git(*arguments):
                return output_of("git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments, cwd=root)

            git("init", "-q", "-b", "main")
            for name in ("kept", "edited", "deleted", "moved", "staged", "later"):
                (root / name).write_text(f"{name}\n" * 20)
            (root / ".gitignore").write_text("ignored\n")
            git("add", "-A")
            git("commit", "-qm", "main: begin")
            git("checkout", "-qb", "branch")
            git("mv", "moved", "there")
            git("commit", "-qm", "branch: move")
            git("checkout", "-q", "main")
            (root / "later").write_text("main went on\n")
            git("commit", "-qam", "main: go on")
            git("checkout", "-q", "branch")
            (root / "staged").write_text("other")
            git("add", "staged")
            (root / "edited").write_text("other")
            (root / "deleted").unlink()
            (root / "new").write_text("new")
            (root / "ignored").write_text("x")
            name, commit = dev.base_of(None)
            self.assertEqual(name, "main")
            self.assertEqual(dev.changed_since(commit), ["deleted", "edited", "moved", "new", "staged", "there"])
            with self.assertRaises(SystemExit):
                dev.base_of("no-such-branch")


if __name__ == "__main__":
    unittest.main()
