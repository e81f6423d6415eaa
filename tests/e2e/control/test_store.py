"""The coordinator's state folder: it is made by an operator's word only, and what is damaged in it is refused."""
import contextlib
import shutil
import sqlite3
import subprocess
import unittest

from harness import BIN
from service_harness import ServiceTest

LONG = ("--set", "training.train_iters=1000000", "--set", "checkpoint.every_iters=0")


class StoreFolderTest(ServiceTest):
    def run_coordinator(self, state):
        """Starts a coordinator in this cluster's place; returns its exit code (None: it serves) and its log."""
        log = self.dir / "second.log"
        with open(log, "wb") as file:
            process = subprocess.Popen(
                [str(BIN / "mt-coordinator"), "--listen", f"127.0.0.1:{self.port}", "--state", str(state),
                 "--http-listen", f"127.0.0.1:{self.http_port}"],
                stderr=file, stdout=file, env=self.env, stdin=subprocess.DEVNULL)
        try:
            code = process.wait(timeout=60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            code = None
        return code, log.read_text()

    def test_an_empty_store_is_refused_and_costs_no_rank(self):
        self.submit(*LONG)
        self.wait_state("RUNNING")
        self.wait_step(3)
        ranks = self.rank_processes()
        self.kill_coordinator()
        (self.dir / "unmounted").mkdir()
        for state in (self.dir / "unmounted", self.dir / "mistyped"):
            code, log = self.run_coordinator(state)
            self.assertEqual(code, 65, f"a coordinator serves from {state.name}: {log}")
            for words in (str(state), "mt-coordinator init", "backup", "mount"):
                self.assertIn(words, log)
        self.assertFalse((self.dir / "mistyped").exists(), "a folder that was mistyped was made")
        self.assertEqual(list((self.dir / "unmounted").iterdir()), [])
        self.assertEqual(self.rank_processes(), ranks)
        self.start_coordinator()
        self.wait_nodes(1)
        step = self.step()
        self.wait_step(step + 3)
        self.assertEqual(self.state(), "RUNNING")
        self.assertEqual(self.rank_processes(), ranks)

    def test_init_makes_a_store_once(self):
        state = self.dir / "made/state"
        init = [str(BIN / "mt-coordinator"), "init", "--state", str(state)]
        done = subprocess.run(init, capture_output=True, text=True, timeout=30, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn(str(state), done.stdout)
        self.assertEqual(state.stat().st_mode & 0o777, 0o700)
        for path in state.iterdir():
            self.assertEqual(path.stat().st_mode & 0o777, 0o600, path.name)
        before = (state / "coordinator.db").read_bytes()
        done = subprocess.run(init, capture_output=True, text=True, timeout=30, check=False)
        self.assertEqual(done.returncode, 65, done.stdout)
        self.assertIn("there is one already", done.stderr)
        self.assertEqual((state / "coordinator.db").read_bytes(), before)

    def test_what_lies_in_the_way_is_named(self):
        self.kill_coordinator()
        lost = self.dir / "lost"
        lost.mkdir()
        shutil.copy(self.dir / "coordinator/coordinator.db", lost / "coordinator.db-wal")
        (self.dir / "file").write_text("x")
        for state, words in ((lost, "coordinator.db-wal is there without"), (self.dir / "file", "is not a folder")):
            for command in (["--listen", "127.0.0.1:0"], ["init"], ["--check-config"]):
                done = subprocess.run([str(BIN / "mt-coordinator"), *command, "--state", str(state)], capture_output=True,
                                      text=True, timeout=30, check=False)
                self.assertEqual(done.returncode, 65, f"{command}: {done.stderr}")
                self.assertIn(words, done.stderr)

    def test_what_the_coordinator_writes_is_its_owners_alone(self):
        self.submit("--set", "training.train_iters=40", "--follow", "--set", "training.eval.every_iters=10")
        self.wait_for("the history", lambda: list((self.dir / "coordinator/history").glob("*.steps")))
        state = self.dir / "coordinator"
        modes = {str(path.relative_to(state)): path.stat().st_mode & 0o777 for path in [state, *state.rglob("*")]}
        wrong = {name: oct(mode) for name, mode in modes.items() if mode & 0o077}
        self.assertEqual(wrong, {})
        self.assertLessEqual({"coordinator.db", "coordinator.db-wal", "coordinator.lock", "history/journal"}, set(modes))

    def test_an_older_store_is_taken_away_from_others(self):
        self.kill_coordinator()
        state = self.dir / "coordinator"
        for path in [state, *state.rglob("*")]:
            path.chmod(0o755 if path.is_dir() else 0o644)
        self.start_coordinator()
        self.wait_nodes(1)
        self.assertEqual({oct(path.stat().st_mode & 0o077) for path in [state, *state.rglob("*")]}, {"0o0"})

    def test_two_flipped_bytes_in_a_row_are_refused(self):
        self.submit(*LONG, "--set", "name=precious", "--set", "parallel.data=4")  # more than there is: it waits
        uid = self.job("precious")["uid"]
        self.kill_coordinator()
        database = self.dir / "coordinator/coordinator.db"
        with contextlib.closing(sqlite3.connect(database)) as connection:
            connection.execute("pragma wal_checkpoint(truncate)")
        content = database.read_bytes()
        self.assertIn(b"precious", content)
        database.write_bytes(content.replace(b"precious", b"preciuos"))
        code, log = self.run_coordinator(self.dir / "coordinator")
        self.assertEqual(code, 65, f"a damaged row was believed: {log}")
        for words in ("table jobs", uid, "mt-coordinator restore"):
            self.assertIn(words, log)


if __name__ == "__main__":
    unittest.main()
