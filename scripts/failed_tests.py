#!/usr/bin/env python3
"""The failed tests of a CTest run and the end of what each has printed, where a reader of a long log looks first: last.

Usage: failed_tests.py BUILD_DIRECTORY
"""
import pathlib
import re
import sys

MOST_LINES = 24  # of one test
MOST_TESTS = 8
CHROME = re.compile(r"^(-{5,}|\s*|Output:|Test time = .*)$")


def read(path):
    return path.read_text(errors="replace") if path.exists() else ""


def main():
    logs = pathlib.Path(sys.argv[1]) / "Testing/Temporary"
    failed = [line.split(":", 1)[1] for line in read(logs / "LastTestsFailed.log").splitlines() if ":" in line]
    log = read(logs / "LastTest.log")
    for name in failed[:MOST_TESTS]:
        found = re.search(rf'^"{re.escape(name)}" start time: .*?\n(.*?)^"{re.escape(name)}" end time', log, re.M | re.S)
        lines = [line for line in (found[1] if found else "it left no output").splitlines() if not CHROME.match(line)]
        print(f"\n=== {name}")
        print("\n".join(line[:300] for line in lines[-MOST_LINES:]))
    if len(failed) > MOST_TESTS:
        print(f"\n=== and {len(failed) - MOST_TESTS} more: {logs / 'LastTestsFailed.log'}")


if __name__ == "__main__":
    main()
