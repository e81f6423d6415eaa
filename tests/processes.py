"""The end of the processes that tests have started, whatever they do: what a test leaves runs beside all tests after it."""
import os
import pathlib
import shutil
import signal
import subprocess
import time


def alive():
    """pid -> command line of all living processes but this one."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
            state = (entry / "stat").read_text().rsplit(")", 1)[1].split()[0]
        except OSError:
            continue
        if command and state not in "ZX":
            found[int(entry.name)] = command
    return found


def alive_with(text):
    """Pids of living processes whose command line contains `text`."""
    return [pid for pid, command in alive().items() if text in command]


def end(process, how=signal.SIGTERM, limit=60, name=None):
    """Ends a subprocess.Popen; one that does not end by `how` within the limit is killed, which is an AssertionError."""
    if process is None or process.poll() is not None:
        return
    process.send_signal(how)
    try:
        process.wait(timeout=limit)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        raise AssertionError(f"{name or process.args[0]} (pid {process.pid}) did not end within {limit} s of signal {int(how)}; "
                             "it was killed") from None


def kill_all(folder):
    """Kills every process whose command line names a file below the folder; returns what it killed, pid -> command line.

    A process may start another one until it is gone, and one that is killed may live on for a moment, so this looks until nobody
    is left."""
    killed = {}
    give_up = time.monotonic() + 30
    while (left := {pid: command for pid, command in alive().items() if str(folder) in command}) and time.monotonic() < give_up:
        killed.update(left)
        for pid in left:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        time.sleep(0.02)
    return killed


def sweep(folder):
    """Kills every process whose command line names a file below the folder and removes the folder; returns what it killed, as text."""
    killed = kill_all(folder)
    shutil.rmtree(folder, ignore_errors=True)
    return [f"{pid} {command[:200]}" for pid, command in killed.items()]
