#!/usr/bin/env python3
"""Ends the programs that the tests of one run have left, and names them: their folders tell the test.

Usage: left_programs.py BUILD_DIRECTORY MARK [SECONDS]
    Those whose file lies below the folder and whose environment has MT_TEST_RUN=MARK, which scripts/test.sh sets and programs
    inherit: a cluster that somebody runs from the same build is not touched. Exit code 1 if there were any. A program that is just
    about to end is waited for, 5 seconds by default.
"""
import os
import pathlib
import signal
import sys
import time


def left(build, mark):
    """pid -> command line."""
    found = {}
    for entry in pathlib.Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            program = os.readlink(entry / "exe")
            marked = mark in (entry / "environ").read_bytes().split(b"\0")
            command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
        except OSError:
            continue
        if marked and program.startswith(build + "/"):
            found[int(entry.name)] = command
    return found


def main():
    build, mark = os.path.realpath(sys.argv[1]), f"MT_TEST_RUN={sys.argv[2]}".encode()
    give_up = time.monotonic() + float(sys.argv[3] if len(sys.argv) > 3 else 5)
    while (found := left(build, mark)) and time.monotonic() < give_up:
        time.sleep(0.1)
    ended = {}
    give_up = time.monotonic() + 30
    while found and time.monotonic() < give_up:  # a program may start another one before its end
        for pid in found:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        ended.update(found)
        time.sleep(0.1)
        found = left(build, mark)
    if ended:
        print("\n=== programs that tests have left, now ended (their folders name the test)")
        print("\n".join(f"{pid} {command[:300]}" for pid, command in sorted(ended.items())))
    return 1 if ended else 0


if __name__ == "__main__":
    sys.exit(main())
