#!/usr/bin/env python3
"""The steps of scripts/test.sh --checks that took longest: a file that is compiled, one that clang-tidy reads, a check of the sources, a
test; where its time goes.

Usage: costly_steps.py BUILD_FOLDER SINCE     prints ten of those since then (nanoseconds since 1970), the longest first

Ninja's log has what was built and when, lint.times what scripts/lint.sh did, results.xml the tests.
"""
import pathlib
import sys

import failed_tests

MOST = 10
STAGES = ("asan-ubsan", "tsan")


def compiled(folder, since):
    """(seconds, name) of what Ninja has built: a line has begin and end in milliseconds of that build, the file's time, its name."""
    log = folder / ".ninja_log"
    lines = [line.split("\t") for line in log.read_text().splitlines()[1:]] if log.exists() else []
    return [((int(end) - int(begin)) / 1000, f"build of {folder.name}: {output}")
            for begin, end, changed, output, _ in (line for line in lines if len(line) == 5) if int(changed) >= since]


def linted(path, since):
    if not path.exists() or path.stat().st_mtime_ns < since:
        return []
    return [(float(seconds), f"lint: {name}") for seconds, name in (line.split(" ", 1) for line in path.read_text().splitlines())]


def tested(folder, since):
    results = folder / "results.xml"
    if not results.exists() or results.stat().st_mtime_ns < since:
        return []
    return [(float(test.get("time")), f"tests of {folder.name}: {test.get('name')}") for test in failed_tests.tests_of(results)]


def main():
    build, since = pathlib.Path(sys.argv[1]), int(sys.argv[2])
    steps = linted(build / "lint.times", since)
    for stage in STAGES:
        steps += compiled(build / stage, since) + tested(build / stage, since)
    print("\nThe costliest steps of the checks:")
    for seconds, name in sorted(steps, reverse=True)[:MOST]:
        print(f"{seconds:8.1f} s  {name}")


if __name__ == "__main__":
    main()
