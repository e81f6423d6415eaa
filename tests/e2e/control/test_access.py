"""What is closed to others: files outside the roots, the terminal of whoever looks, the logs of ranks."""
import os
import pathlib
import pty
import stat
import subprocess
import unittest

from harness import BIN, ClusterTest
from service_harness import ServiceTest

ESCAPE = "\x1b"


class LinkTest(ClusterTest):
    """Paths of a job stay below the worker's roots, links in them too."""

    def fails(self, *flags, words=()):
        done = self.submit("--follow", *flags, check=False)
        self.assertEqual(done.returncode, 9, done.stdout + done.stderr)
        job = self.job()
        self.assertEqual(job["state"], "FAILED")
        for word in words:
            self.assertRegex(job["message"], word)
        return job

    def test_links_that_leave_the_roots_are_refused(self):
        self.up()
        data, ckpt = self.dir / "data", self.dir / "ckpt"
        outside = self.dir / "outside"
        outside.mkdir()
        for end in ("bin", "idx"):
            (outside / f"far.{end}").write_bytes((data / f"text_document.{end}").read_bytes())
        (data / "far.idx").symlink_to("/etc/passwd")
        (data / "far.bin").symlink_to(outside / "far.bin")
        job = self.fails("--set", "data.path=[far]", words=[r"data/far\.idx is a link to /etc/passwd, outside of the root",
                                                            "copy what it names below the root"])
        self.assertEqual(job["cause"], "USER_ERROR")
        (data / "far.idx").unlink()
        (data / "far.idx").symlink_to("text_document.idx")
        self.fails("--set", "data.path=[far]", words=[r"data/far\.bin is a link to .*/outside/far\.bin, outside"])
        ckpt.mkdir(exist_ok=True)
        (ckpt / "away").symlink_to(outside)
        self.fails("--set", "checkpoint.directory=away", words=[r"ckpt/away is a link to .*/outside, outside"])
        self.fails("--set", "checkpoint.load=away/x", words=[r"ckpt/away is a link to .*/outside, outside"])
        self.assertEqual(sorted(p.name for p in outside.iterdir()), ["far.bin", "far.idx"], "nothing was made there")
        # A link that stays below the root is as good as the file.
        (data / "far.bin").unlink()
        (data / "far.bin").symlink_to(data / "text_document.bin")
        self.submit("--follow", "--set", "data.path=[far]")


class TerminalTest(ServiceTest):
    """Nothing that others wrote controls the terminal, and no name looks like something else."""

    def on_terminal(self, *args):
        """What mtctl writes where its standard output is a terminal."""
        outer, inner = pty.openpty()
        process = subprocess.Popen([str(BIN / "mtctl"), *args], env=dict(self.env, TERM="xterm"), stdout=inner,
                                   stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        os.close(inner)
        text = b""
        try:
            while block := os.read(outer, 65536):
                text += block
        except OSError:
            pass  # the terminal's other end is closed
        os.close(outer)
        process.wait(timeout=30)
        return text.decode(errors="replace")

    def test_reasons_and_names_with_control_characters_are_refused(self):
        self.submit("--set", "training.train_iters=1000000")
        for reason in (f"x{ESCAPE}[2J", "two\nlines", "right\u202eto left", "\u009b31m"):
            refused = self.mtctl("kill", "tiny", "--yes", "--reason", reason, check=False)
            self.assert_one_message(refused, 3, "a reason is one line")
        self.mtctl("pause", "tiny", "--hold", "--wait", "--reason", "Grüße, \u2713")
        self.mtctl("kill", "tiny", "--yes")
        for field in ("name", "namespace"):
            self.assert_one_message(self.submit("--dry-run", "--set", f"{field}=-x", check=False), 3, "begin with -")
        for labels, said in (('{"-x": a}', "labels: .*label"), ('{"": a}', "labels: .*label"), ('{"..": a}', "labels: .*label"),
                             ('{a: "\\e[2J"}', r"labels\.a: .*control character"),
                             ('{"a\\e": b}', r"labels\.a\?: .*control character")):
            refused = self.submit("--dry-run", "--set", f"labels={labels}", check=False)
            self.assert_one_message(refused, 3, "1 fault\n", said)
            self.assertNotIn(ESCAPE, refused.stderr)
        for name in ("-x", ".", "..", f"a{ESCAPE}[2J", b"a\xff", "a\u202e", "a b"):
            name = os.fsencode(name) if isinstance(name, str) else name
            done = subprocess.run([os.fsencode(BIN / "mt-worker"), b"--node=" + name, b"--state",
                                   os.fsencode(self.dir / "odd"), b"--check-config"], env=self.env, capture_output=True,
                                  timeout=30)
            self.assertEqual(done.returncode, 64, (name, done.stderr))
            self.assertNotIn(b"\x1b", done.stderr)

    def test_log_lines_reach_a_terminal_cleaned_and_a_file_as_they_are(self):
        self.submit("--follow")
        log = next((self.dir / "logs").rglob("rank-00000.log"))
        with open(log, "ab") as f:
            f.write(b"\x1b]0;owned\x07 over\rwritten \xff\n")
        self.assertIn("\\x1b]0;owned\\x07 over\\x0dwritten \\xff", self.on_terminal("logs", "tiny"))
        self.assertNotIn(ESCAPE, self.on_terminal("logs", "tiny"))
        self.assertIn(f"{ESCAPE}]0;owned", self.on_terminal("logs", "tiny", "--raw"))
        piped = subprocess.run([str(BIN / "mtctl"), "logs", "tiny"], env=self.env, capture_output=True, timeout=30)
        self.assertIn(b"\x1b]0;owned\x07 over\rwritten \xff\n", piped.stdout)


class LogAccessTest(ServiceTest):
    """Logs of ranks are for the worker's user and its group, its state for the user alone."""

    def modes(self, *roots):
        for root in roots:
            for path in sorted(pathlib.Path(root).rglob("*")):
                if not path.is_symlink() and not path.is_socket():
                    yield path, stat.S_IMODE(path.stat().st_mode)

    def test_logs_and_state_are_closed_to_others(self):
        self.submit("--set", "training.train_iters=1000000")
        self.wait_step(2)
        log = next((self.dir / "logs").rglob("rank-00000.log"))
        self.assertEqual(oct(stat.S_IMODE(log.stat().st_mode)), "0o640")
        self.assertEqual(oct(stat.S_IMODE(log.parent.stat().st_mode)), "0o750")
        records = [path.name for path, _ in self.modes(self.dir / "node-a" / "allocations")]
        self.assertIn("rank.json", records)
        for path, mode in self.modes(self.dir / "node-a" / "allocations"):
            self.assertEqual(mode & 0o077, 0, f"{path} is {oct(mode)}")
        self.assertEqual(stat.S_IMODE((self.dir / "node-a").stat().st_mode), 0o700)
        # One of an older worker is mended when it is read; what its owner has forbidden stays so.
        log.chmod(0o644)
        log.parent.chmod(0o755)
        other = log.with_name("rank-00001.log")
        other.chmod(0o600)
        self.mtctl("logs", "tiny", "--ranks", "0,1")
        self.assertEqual(oct(stat.S_IMODE(log.stat().st_mode)), "0o640")
        self.assertEqual(oct(stat.S_IMODE(log.parent.stat().st_mode)), "0o750")
        self.assertEqual(oct(stat.S_IMODE(other.stat().st_mode)), "0o600")
        self.mtctl("kill", "tiny", "--yes")


if __name__ == "__main__":
    unittest.main()
