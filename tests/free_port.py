"""Ports that a test's servers keep through their restarts."""
import fcntl
import os
import pathlib
import random
import socket
import tempfile

_held = []  # locks, which the end of the process releases


def free_port():
    """Outside the range from which the kernel takes ports for outgoing connections (32768 and above), so that no connection of
    another test takes it while the server is down; given once among all tests that run."""
    folder = pathlib.Path(tempfile.gettempdir()) / f"mt-test-ports-{os.getuid()}"
    folder.mkdir(exist_ok=True)
    while True:
        port = random.SystemRandom().randrange(15_000, 32_000)
        lock = open(folder / str(port), "w")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            with socket.socket() as s:
                s.bind(("127.0.0.1", port))
        except OSError:  # somebody's
            lock.close()
            continue
        _held.append(lock)
        return port
