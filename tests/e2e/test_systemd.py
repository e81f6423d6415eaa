"""The ExecStart lines of the units, run as systemd would run them, under a NOTIFY_SOCKET that is ours.

Variables are expanded by systemd's rules; what an administrator's environment file would set comes over the defaults.
"""
import pathlib
import re
import shlex
import signal
import socket
import subprocess
import threading
import unittest

from harness import BIN, ClusterTest
from service_harness import free_port

UNITS = pathlib.Path(__file__).resolve().parents[2] / "deploy/systemd"
WATCHDOG_S = 2  # in place of the unit's 30 s or 60 s, so that pings come within the test


class NotifySocket:
    """Collects the datagrams of one program."""

    def __init__(self, path):
        self.path = str(path)
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.socket.settimeout(0.2)
        self.closing = False
        self.lines = []
        self.thread = threading.Thread(target=self.read, daemon=True)
        self.thread.start()

    def read(self):
        while not self.closing:
            try:
                self.lines += self.socket.recv(4096).decode().splitlines()
            except TimeoutError:
                continue

    def values(self, key):
        return [line.split("=", 1)[1] for line in list(self.lines) if line.startswith(f"{key}=")]

    def close(self):
        self.closing = True
        self.thread.join(5)
        self.socket.close()


class Unit:
    """A unit file: its settings, and its command lines with variables expanded."""

    def __init__(self, name):
        self.name = name
        text = (UNITS / f"{name}.service.in").read_text().replace("@MT_BINDIR@", str(BIN))
        self.settings = [tuple(line.split("=", 1)) for line in text.splitlines() if re.match(r"[A-Za-z]+=", line)]
        self.defaults = dict(value.split("=", 1) for key, value in self.settings if key == "Environment")
        self.defaults = {k: v.replace("%H", socket.gethostname()) for k, v in self.defaults.items()}

    def get(self, key):
        return next(value for found, value in self.settings if found == key)

    def command(self, key, environment):
        """systemd.service(5): ${X} within a word as it is, $X alone as a list of words."""
        words = []
        for word in shlex.split(self.get(key)):
            alone = re.fullmatch(r"\$([A-Z_]+)", word)
            if alone:
                words += environment.get(alone.group(1), "").split()
            else:
                words.append(re.sub(r"\$\{([A-Z_]+)\}", lambda m: environment.get(m.group(1), ""), word))
        return words


class UnitStartTest(ClusterTest):
    def setUp(self):
        super().setUp()
        self.processes = []
        self.addCleanup(self.kill_all)

    def kill_all(self):
        for process, _ in self.processes:
            if process.poll() is None:
                process.kill()
                process.wait()

    def tearDown(self):
        self.kill_all()
        super().tearDown()

    def environment(self, unit, overrides):
        """What systemd gives to the program, its folders below the test's."""
        environment = {**self.env, **unit.defaults, **overrides}
        for key in ("StateDirectory", "RuntimeDirectory", "LogsDirectory", "CacheDirectory"):
            names = [value for found, value in unit.settings if found == key]
            if names:
                folder = self.dir / key / names[0]
                folder.mkdir(parents=True, exist_ok=True)
                variable = {"StateDirectory": "STATE", "RuntimeDirectory": "RUNTIME", "LogsDirectory": "LOGS",
                            "CacheDirectory": "CACHE"}[key]
                environment[f"{variable}_DIRECTORY"] = str(folder)
                if unit.name == "mt-coordinator" and variable == "STATE" and not any(folder.iterdir()):
                    # What docs/operations.md has the operator do before the first start.
                    subprocess.run([str(BIN / "mt-coordinator"), "init", "--state", str(folder)], check=True,
                                   capture_output=True, timeout=30)
        return environment

    def start(self, name, **overrides):
        """Runs ExecStartPre, then ExecStart; returns the process, its notifications and its unit."""
        unit = Unit(name)
        environment = self.environment(unit, overrides)
        before = subprocess.run(unit.command("ExecStartPre", environment), env=environment, capture_output=True, text=True,
                                timeout=30, check=False)
        self.assertEqual(before.returncode, 0, before.stdout + before.stderr)
        notify = NotifySocket(self.dir / f"{name}.notify")
        self.addCleanup(notify.close)
        environment.update(NOTIFY_SOCKET=notify.path, WATCHDOG_USEC=str(WATCHDOG_S * 1000000))
        # As for systemd's child, WATCHDOG_PID is the program's own.
        with open(self.dir / f"{name}.log", "ab") as log:
            process = subprocess.Popen(["/bin/sh", "-c", 'WATCHDOG_PID=$$; export WATCHDOG_PID; exec "$@"', "sh",
                                        *unit.command("ExecStart", environment)], env=environment, stdin=subprocess.DEVNULL,
                                       stdout=log, stderr=log)
        self.processes.append((process, notify))
        return process, notify, unit

    def check_life(self, process, notify, unit):
        """READY, a status, pings for as long as it works; at SIGTERM STOPPING, and the end with code 0."""
        self.assertEqual(unit.get("Type"), "notify")
        self.wait_for("READY=1", lambda: notify.values("READY") == ["1"], limit=30)
        self.assertTrue([s for s in notify.values("STATUS") if s], "no status line")
        pings = len(notify.values("WATCHDOG"))
        self.wait_for("pings", lambda: len(notify.values("WATCHDOG")) >= pings + 3, limit=10 * WATCHDOG_S)
        self.assertEqual(set(notify.values("WATCHDOG")), {"1"})
        self.assertEqual(notify.values("STOPPING"), [])

    def check_end(self, process, notify):
        process.send_signal(signal.SIGTERM)
        self.assertEqual(process.wait(timeout=30), 0)
        self.wait_for("STOPPING=1", lambda: notify.values("STOPPING") == ["1"], limit=5)
        self.assertEqual(notify.values("READY"), ["1"])

    def test_both_units(self):
        api, http, worker_http = free_port(), free_port(), free_port()
        coordinator = self.start("mt-coordinator", MT_COORDINATOR_LISTEN=f"127.0.0.1:{api}",
                                 MT_COORDINATOR_HTTP_LISTEN=f"127.0.0.1:{http}", MT_COORDINATOR_LOG_LEVEL="debug")
        self.check_life(*coordinator)
        # READY means that it serves.
        self.env["MTCTL_COORDINATOR"] = f"127.0.0.1:{api}"
        self.mtctl("get", "nodes")
        worker = self.start("mt-worker", MT_WORKER_COORDINATOR=f"127.0.0.1:{api}", MT_WORKER_NODE="node-u",
                            MT_WORKER_HTTP_LISTEN=f"127.0.0.1:{worker_http}", MT_WORKER_DATA_ROOT=str(self.dir / "data"),
                            MT_WORKER_CHECKPOINT_ROOT=str(self.dir / "ckpt"), MT_WORKER_ARGS="--cpu-slots=2 --label=rack=r1")
        self.check_life(*worker)
        node = self.wait_for("the node", lambda: self.nodes())[0]
        self.assertEqual((node["name"], node["labels"], len(node["slots"])), ("node-u", {"rack": "r1"}, 2))
        self.submit("--follow")
        self.check_end(*worker[:2])
        self.check_end(*coordinator[:2])

    def test_bad_flags_end_before_the_start_with_a_code_that_is_not_restarted(self):
        for name, variable in (("mt-coordinator", "MT_COORDINATOR_ARGS"), ("mt-worker", "MT_WORKER_ARGS")):
            unit = Unit(name)
            environment = self.environment(unit, {variable: "--no-such-flag"})
            done = subprocess.run(unit.command("ExecStartPre", environment), env=environment, capture_output=True, text=True,
                                  timeout=30, check=False)
            self.assertIn("--no-such-flag", done.stdout + done.stderr)
            self.assertIn(str(done.returncode), unit.get("RestartPreventExitStatus").split(), name)

    def test_an_address_beyond_loopback_needs_the_word(self):
        for name, variable, args in (("mt-coordinator", "MT_COORDINATOR_LISTEN", "MT_COORDINATOR_ARGS"),
                                     ("mt-coordinator", "MT_COORDINATOR_HTTP_LISTEN", "MT_COORDINATOR_ARGS"),
                                     ("mt-worker", "MT_WORKER_HTTP_LISTEN", "MT_WORKER_ARGS"),
                                     ("mt-worker", "MT_WORKER_ADDRESS", "MT_WORKER_ARGS")):
            unit = Unit(name)
            address = "192.0.2.1" if variable.endswith("ADDRESS") else "0.0.0.0:7999"
            for insecure in (False, True):
                environment = self.environment(unit, {variable: address, args: "--insecure" if insecure else ""})
                done = subprocess.run(unit.command("ExecStartPre", environment), env=environment, capture_output=True,
                                      text=True, timeout=30, check=False)
                self.assertEqual(done.returncode, 0 if insecure else 64, f"{variable}: {done.stderr}")
                if not insecure:
                    self.assertIn("--insecure", done.stderr)


if __name__ == "__main__":
    unittest.main()
