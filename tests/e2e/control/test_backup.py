"""Backups of a coordinator that works, and docs/operations.md's steps, run as they are written."""
import os
import pathlib
import re
import signal
import subprocess
import tarfile
import threading
import unittest

from harness import BIN
from service_harness import ServiceTest, make_store

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs/operations.md"
LONG = ("--set", "training.train_iters=1000000", "--set", "checkpoint.every_iters=0")

# What the page's commands find besides mtctl and mt-coordinator: this machine has no systemd to ask.
# The date is one and the same on both sides of midnight.
DATE = "#!/bin/sh\necho 2026-11-23\n"
SUDO = '#!/bin/sh\nexec "$@"\n'
SYSTEMCTL = """#!/bin/sh
# systemctl stop|start mt-coordinator
[ "$2" = mt-coordinator ] || exit 9
case "$1" in
  stop) kill "$(cat "$STATE.pid")"; tail --pid="$(cat "$STATE.pid")" -f /dev/null ;;
  start) mt-coordinator --listen "$MTCTL_COORDINATOR" --http-listen 127.0.0.1:0 --state "$STATE" >> "$STATE.log" 2>&1 < /dev/null &
         echo $! > "$STATE.pid"
         while kill -0 $!; do mtctl --connect-timeout 1 get nodes > /dev/null 2>&1 && exit 0; sleep 0.1; done; exit 1 ;;
  *) exit 9 ;;
esac
"""


def steps(word):
    """The commands of the section "Back up and restore" that follow **word**."""
    section = PAGE.read_text().split("## Back up and restore")[1].split("\n## ")[0]
    (after,) = re.findall(rf"\*\*{word}\*\*(.*?)```sh\n(.*?)```", section, re.S)
    return after[1]


class BackupTest(ServiceTest):
    autostart = False

    def setUp(self):
        super().setUp()
        self.state_dir = self.dir / "private/mt-coordinator"
        tools = self.dir / "tools"
        tools.mkdir()
        for name, text in (("date", DATE), ("sudo", SUDO), ("systemctl", SYSTEMCTL)):
            (tools / name).write_text(text)
            (tools / name).chmod(0o755)
        self.env.update(PATH=f"{tools}:{BIN}:{os.environ['PATH']}", STATE=str(self.state_dir))
        self.state_dir.parent.mkdir()
        make_store(self.state_dir)
        self.run_page("sudo systemctl start mt-coordinator")

    def stop_all(self):
        super().stop_all()
        pid = self.state_dir.with_suffix(".pid")
        if pid.exists():
            self.run_page("systemctl stop mt-coordinator", check=False)
            pid.unlink()

    def run_page(self, commands, check=True):
        done = subprocess.run(["/bin/bash", "-euc", commands.replace("/var/lib/private", str(self.state_dir.parent))],
                              env=self.env, cwd=self.dir, capture_output=True, text=True, timeout=120, stdin=subprocess.DEVNULL,
                              check=False)
        if check:
            self.assertEqual(done.returncode, 0, f"{commands}\n{done.stdout}\n{done.stderr}")
        return done

    def saved(self):
        (file,) = self.dir.glob("megatrain-*.tar")
        return file

    def start_job(self):
        self.start_worker("node-a", 2)
        self.wait_nodes(1)
        self.submit(*LONG)
        self.wait_state("RUNNING")
        self.wait_step(5)

    def test_the_steps_of_the_page_bring_a_lost_store_back(self):
        self.start_job()
        self.submit("--set", "name=waits", "--set", "parallel.data=4")
        self.wait_state("QUEUED", "waits")
        ranks = self.rank_processes()
        step = self.step()
        self.run_page(steps("Back up"))
        self.wait_step(step + 5)
        newest = self.step()
        # The disaster: the database's pages are overwritten.
        self.run_page("systemctl stop mt-coordinator")
        with open(self.state_dir / "coordinator.db", "r+b") as database:
            database.seek(0, os.SEEK_END)
            size = database.tell()
            database.seek(0)
            database.write(b"\xa5" * size)
        done = self.run_page("systemctl start mt-coordinator", check=False)
        self.assertNotEqual(done.returncode, 0)
        self.run_page(steps("Restore").replace("sudo systemctl stop mt-coordinator\n", ""))  # it has ended already
        self.wait_nodes(1)
        self.wait_step(newest + 5)
        self.assertEqual(self.state(), "RUNNING")
        self.assertEqual(self.rank_processes(), ranks, "ranks were disturbed")
        self.assertEqual(self.state("waits"), "QUEUED")
        rows = [row["step"] for row in self.history()]
        self.assertEqual(rows[:step], list(range(1, step + 1)), "of the time before the backup")
        self.assertEqual(rows, sorted(set(rows)))
        done = self.run_page(steps("Check"))
        self.assertRegex(done.stdout, r"\d+ rows, all whole")

    def test_the_steps_of_the_page_while_the_old_store_is_whole(self):
        self.start_job()
        ranks = self.rank_processes()
        self.run_page(steps("Back up"))
        self.run_page(steps("Restore"))
        self.wait_nodes(1)
        self.wait_step(self.step() + 3)
        self.assertEqual(self.rank_processes(), ranks)
        self.assertTrue((self.dir / "private/mt-coordinator.before/coordinator.db").exists())

    def test_a_backup_is_one_moment_of_a_busy_coordinator(self):
        """While jobs are submitted and deleted, and a job's steps come in."""
        self.start_job()
        ended = threading.Event()

        def keep_busy():
            number = 0
            while not ended.is_set():
                number += 1
                self.mtctl("submit", "-f", str(self.job_file), "--set", f"name=busy-{number}", "--set", "parallel.data=4", check=False)
        busy = threading.Thread(target=keep_busy)
        busy.start()
        try:
            for number in range(5):
                self.mtctl("admin", "backup", str(self.dir / f"{number}.tar"))
                state = self.dir / f"restored-{number}"
                for command in (["restore", "--from", str(self.dir / f"{number}.tar")], ["check"]):
                    done = subprocess.run([str(BIN / "mt-coordinator"), *command, "--state", str(state)], capture_output=True,
                                          text=True, timeout=60, check=False)
                    self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        finally:
            ended.set()
            busy.join()
        with tarfile.open(self.dir / "4.tar") as archive:
            names = archive.getnames()
        self.assertEqual((names[0], names[-1]), ("coordinator.db", "backup.sums"))
        self.assertIn("history/journal", names)
        self.assertFalse((self.state_dir / "backup.tmp").exists())

    def begin_a_large_backup(self):
        """Of a state that takes a while to send; returns mtctl, at work."""
        with open(self.state_dir / "history/large.steps", "wb") as file:
            file.truncate(400 << 20)
        process = subprocess.Popen([str(BIN / "mtctl"), "admin", "backup", str(self.dir / "large.tar")], env=self.env,
                                   stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        part = self.dir / "large.tar.part"
        self.wait_for("the first bytes", lambda: part.exists() and part.stat().st_size > 0)
        self.assertIsNone(process.poll(), "it has ended already")
        return process

    def test_a_reader_that_leaves_ends_the_backup(self):
        (self.state_dir / "history").mkdir(exist_ok=True)
        process = self.begin_a_large_backup()
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=60)
        self.assertNotEqual(process.returncode, 0)
        self.assertEqual(list(self.dir.glob("large*")), [])
        (self.state_dir / "history/large.steps").unlink()
        self.wait_for("the next one", lambda: self.mtctl("admin", "backup", str(self.dir / "next.tar"), check=False).returncode == 0)
        self.assertFalse((self.state_dir / "backup.tmp").exists())

    def test_a_coordinator_stops_though_a_backup_is_under_way(self):
        (self.state_dir / "history").mkdir(exist_ok=True)
        process = self.begin_a_large_backup()
        process.send_signal(signal.SIGSTOP)  # a reader that takes nothing
        self.run_page("systemctl stop mt-coordinator")
        process.send_signal(signal.SIGCONT)
        _, said = process.communicate(timeout=60)
        self.assertNotEqual(process.returncode, 0, said)
        self.assertEqual(list(self.dir.glob("large*")), [])
        self.assertFalse((self.state_dir / "backup.tmp").exists())

    def test_what_is_there_is_not_overwritten(self):
        self.run_page(steps("Back up"))
        before = self.saved().read_bytes()
        self.assertEqual(self.saved().stat().st_mode & 0o777, 0o600)
        done = self.run_page(steps("Back up"), check=False)
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("is there already", done.stderr)
        self.assertEqual(self.saved().read_bytes(), before)
        done = subprocess.run([str(BIN / "mt-coordinator"), "restore", "--state", str(self.state_dir), "--from", str(self.saved())],
                              capture_output=True, text=True, timeout=60, check=False)
        self.assertEqual(done.returncode, 65, done.stderr)


if __name__ == "__main__":
    unittest.main()
