"""A program on a terminal of the test's own: what stands on the screen, keys, sizes, and whether it gave the terminal back."""
import fcntl
import os
import pty
import re
import select
import struct
import termios
import time

SEQUENCE = re.compile(rb"\x1b\[(\?)?([0-9;]*)([A-Za-z])")
GIVEN_BACK = b"\x1b[?1049l"


class Screen:
    """Runs argv on a pseudo-terminal whose session is the program's own. Understands the sequences that mtctl top writes."""

    def __init__(self, argv, env, rows, columns):
        self.master, self.slave = pty.openpty()
        self.resize(rows, columns)
        self.settings = termios.tcgetattr(self.slave)
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            fcntl.ioctl(self.slave, termios.TIOCSCTTY, 0)
            for fd in (0, 1, 2):
                os.dup2(self.slave, fd)
            os.execve(argv[0], argv, env)
        self.lines, self.row, self.column, self.rest, self.bytes = {}, 0, 0, b"", b""
        self.status = None

    def resize(self, rows, columns):
        self.rows = rows
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def press(self, keys):
        os.write(self.master, keys.encode())

    def read(self, seconds=0.1):
        """Takes what was written meanwhile."""
        if not select.select([self.master], [], [], seconds)[0]:
            return
        try:
            data = os.read(self.master, 65536)
        except OSError:
            return
        self.bytes += data
        self.rest += data
        while self.rest:
            if self.rest[:1] == b"\x1b":
                sequence = SEQUENCE.match(self.rest)
                if sequence is None:
                    return  # the end of it comes later
                self.obey(*sequence.groups())
                self.rest = self.rest[sequence.end():]
                continue
            plain = re.match(rb"[^\x1b]+", self.rest).group()
            line = self.lines.get(self.row, "").ljust(self.column)
            text = plain.decode(errors="replace")
            self.lines[self.row] = line[:self.column] + text + line[self.column + len(text):]
            self.column += len(text)
            self.rest = self.rest[len(plain):]

    def drain(self):
        """All that is there: one read takes 4 KiB at most."""
        before = None
        while before != len(self.bytes):
            before = len(self.bytes)
            self.read()

    def obey(self, private, numbers, what):
        if private or what == b"m":
            return
        if what == b"H":
            place = [int(n) for n in numbers.split(b";") if n] or [1]
            self.row, self.column = place[0] - 1, (place + [1])[1] - 1
        elif what == b"K":
            self.lines.pop(self.row, None)
        elif what == b"J":
            first = 0 if numbers == b"2" else self.row
            self.lines = {row: line for row, line in self.lines.items() if row < first}
        else:
            raise AssertionError(f"a sequence that this screen does not know: {what}")

    def page(self):
        """As a terminal does, a smaller one has lost the rows below."""
        return "\n".join(self.lines.get(row, "") for row in range(min(self.rows, max(self.lines, default=-1) + 1)))

    def until(self, condition, limit=30):
        """Reads until condition(page) is true; returns its value, None after `limit` seconds."""
        end = time.monotonic() + limit
        while time.monotonic() < end:
            self.read()
            value = condition(self.page())
            if value:
                return value
        return None

    def is_raw(self):
        return not termios.tcgetattr(self.slave)[3] & termios.ICANON

    def is_given_back(self):
        """The terminal's settings are as they were, and its first screen is shown."""
        return termios.tcgetattr(self.slave) == self.settings and self.bytes.rstrip().endswith(GIVEN_BACK)

    def state(self):
        with open(f"/proc/{self.pid}/stat") as f:
            return f.read().rsplit(")", 1)[1].split()[0]

    def wait(self, limit=20):
        """The exit code, negative for a signal; None: it has not ended."""
        end = time.monotonic() + limit
        while self.status is None and time.monotonic() < end:
            self.read()
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.status = os.waitstatus_to_exitcode(status)
        self.drain()
        return self.status

    def close(self):
        if self.status is None:
            os.kill(self.pid, 9)
            os.waitpid(self.pid, 0)
        os.close(self.master)
        os.close(self.slave)
