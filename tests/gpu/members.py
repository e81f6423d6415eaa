"""Processes of one group, each a small program of its own that says "running" and, at its end, a status."""
import os
import pathlib
import signal
import subprocess
import tempfile
import time

LEAVES_WITHIN = 10  # seconds
# As ranks on GPUs are started.
ENVIRONMENT = {"NCCL_NVLS_ENABLE": "0", "CUDA_DEVICE_MAX_CONNECTIONS": "32", "CUDA_MODULE_LOADING": "EAGER"}


class Members:
    """The programs, which meet in a folder of their own and are gone behind the block. `what`: the name of one in messages."""

    def __init__(self, what, program, arguments):
        """`arguments`: of each program, behind that of the folder."""
        self.what = what
        self.folder = tempfile.TemporaryDirectory()
        path = pathlib.Path(os.environ.get("MT_BIN", "build/cuda-release/bin")) / program
        meet = pathlib.Path(self.folder.name) / "meet"
        self.members = [subprocess.Popen([path, meet, *map(str, own)], stdout=subprocess.PIPE, text=True, env={**os.environ, **ENVIRONMENT})
                        for own in arguments]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for member in self.members:
            member.kill()
            member.wait()
            member.stdout.close()
        self.folder.cleanup()

    def start(self):
        """What went wrong, or ""."""
        for index, member in enumerate(self.members):
            line = member.stdout.readline().strip()
            if line != "running":
                return f"{self.what} {index} does not run: {line}"
        return ""

    def end(self, within):
        """What went wrong, or ""; and what the first says of its rate."""
        said = ""
        for index, member in enumerate(self.members):
            try:
                lines = member.communicate(timeout=within)[0].splitlines()
            except subprocess.TimeoutExpired:
                return f"{self.what} {index} does not come to its end within {within} s", said
            if not lines or lines[-1] != "OK":
                return f"{self.what} {index} ends with: {lines[-1:]}", said
            said = said or lines[0]
        return "", said

    def kill(self, victim):
        """Kills one and tells the others, as agents do. What went wrong, or ""; and the seconds until all others were gone."""
        self.members[victim].kill()
        begin = time.monotonic()
        others = [member for index, member in enumerate(self.members) if index != victim]
        for other in others:
            other.send_signal(signal.SIGUSR1)
        for other in others:
            try:
                said = other.communicate(timeout=max(0.1, begin + LEAVES_WITHIN - time.monotonic()))[0].strip()
            except subprocess.TimeoutExpired:
                return f"a {self.what} is still there after {LEAVES_WITHIN} s", LEAVES_WITHIN
            if other.returncode != 0 or not said.startswith(("ABORTED: ", "UNAVAILABLE: ")):
                return f"a {self.what} ends with {other.returncode}: {said}", time.monotonic() - begin
        return "", time.monotonic() - begin
