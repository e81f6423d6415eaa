"""scripts/hooks: which commit messages pass, as git runs the hook."""
import os
import pathlib
import subprocess
import tempfile
import unittest

from install_tree import SOURCE

PASS = [
    "worker/train: keep the learning rate in one place",
    "kernels/cuda, tests: cut the attention kernels",
    "CMakeLists.txt: build the tests last",
    "docs: " + "x" * 66,
    "tests: größer " + "ü" * 58,  # 72 characters, more bytes
    "docs: a body\n\nwhy and how it was verified, in a line that may be as long as it wants to be, beyond seventy-two",
    "\n# a comment of git's\ndocs: a comment first",
    "Merge branch 'main' into other",
    'Revert "docs: a body that was as long as a subject may be, exactly seventy-two ch"',
    "fixup! docs: a body",
]
FAIL = {
    "docs: " + "x" * 67: "73 characters",
    "Fix things": "folder: imperative summary",
    "docs:no space": "folder: imperative summary",
    "docs: ": "folder: imperative summary",
    "two words: summary": "folder: imperative summary",
    "docs: a full stop.": "full stop",
    "docs: no blank\nline": "not blank",
    "": "folder: imperative summary",
}


class CommitMessageTest(unittest.TestCase):
    def commit(self, message):
        with tempfile.TemporaryDirectory() as folder:
            git = ["git", "-C", folder, "-c", "user.name=a", "-c", "user.email=a@b", "-c", f"core.hooksPath={SOURCE}/scripts/hooks"]
            subprocess.run([*git, "init", "-q"], check=True)
            path = pathlib.Path(folder, "message")
            path.write_text(message + "\n")
            return subprocess.run([*git, "commit", "-q", "--allow-empty", "--allow-empty-message", "--cleanup=verbatim", "-F", str(path)],
                                  capture_output=True, text=True, env=dict(os.environ, LC_ALL="C"))

    def test_lawful_messages_pass(self):
        for message in PASS:
            done = self.commit(message)
            self.assertEqual(done.returncode, 0, f"{message}: {done.stderr}")

    def test_others_are_refused_with_the_reason(self):
        for message, reason in FAIL.items():
            done = self.commit(message)
            self.assertNotEqual(done.returncode, 0, message)
            self.assertIn(reason, done.stderr, message)


if __name__ == "__main__":
    unittest.main()
