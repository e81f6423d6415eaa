#!/usr/bin/env python3
"""A round of all tests on a machine that is busy: scripts/test.sh --full=soak.

Usage: soak.py tests BUILD_DIRECTORY FOLDER     write FOLDER/CTestTestfile.cmake: the build's tests, each with four times its time
       soak.py load FOLDER                      two busy loops, and one that writes and syncs a file there, until the caller ends
       soak.py record RESULTS.xml FILE WORD...  append to FILE the round, by these words, and each test that has failed in it with the
                                                number of rounds of FILE in which it has; exit code 1 if one has
"""
import ctypes
import json
import multiprocessing
import os
import pathlib
import re
import signal
import subprocess
import sys

import failed_tests

TIMES = 4
DEFAULT_SECONDS = 1500  # CTest's
BUSY_LOOPS = 2
ROUND = "round "
PR_SET_PDEATHSIG = 1


def quoted(text):
    return f"[==[{text}]==]"


def property_of(name, value):
    if isinstance(value, bool):
        value = "ON" if value else "OFF"
    return f"{name} {quoted(';'.join(value) if isinstance(value, list) else value)}"


def longer(test):
    """The lines of a test as CMake writes them, with TIMES its limit."""
    # Resources are left out: test.sh gives CTest none here.
    properties = {one["name"]: one["value"] for one in test.get("properties", []) if one["name"] != "RESOURCE_GROUPS"}
    properties["TIMEOUT"] = TIMES * properties.get("TIMEOUT", DEFAULT_SECONDS)
    command = " ".join(quoted(word) for word in test.get("command", ["/nonexistent: not built"]))
    return (f"add_test({quoted(test['name'])} {command})\n"
            f"set_tests_properties({quoted(test['name'])} PROPERTIES\n  "
            + "\n  ".join(property_of(*one) for one in properties.items()) + ")\n")


def write_tests(build, folder):
    shown = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], stdout=subprocess.PIPE, check=True).stdout
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "CTestTestfile.cmake").write_text("".join(longer(test) for test in json.loads(shown)["tests"]))


def end_with_parent():
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)


def burn():
    end_with_parent()
    while True:
        pass


def sync(folder):
    end_with_parent()
    with open(folder / "synced", "wb", buffering=0) as file:
        while True:
            file.seek(0)
            file.write(os.urandom(1 << 16))
            os.fsync(file.fileno())


def load(folder):
    end_with_parent()
    folder.mkdir(parents=True, exist_ok=True)
    for target, args in [(burn, ())] * BUSY_LOOPS + [(sync, (folder,))]:
        multiprocessing.Process(target=target, args=args, daemon=True).start()
    signal.pause()


def record(results, file, words):
    before = file.read_text() if file.exists() else ""
    number = before.count("\n" + ROUND) + before.startswith(ROUND) + 1
    ran, failed = len(failed_tests.tests_of(results)), [test.get("name") for test in failed_tests.failed_of(results)]
    asked = (pathlib.Path(results).parent / "CTestTestfile.cmake").read_text().count("\nset_tests_properties(")
    lines = [f"{ROUND}{number}: {words}, {ran} of {asked} tests, {len(failed)} failed"]
    for name in failed:
        times = 1 + len(re.findall(rf"^failed: {re.escape(name)}, in \d", before, re.MULTILINE))
        lines.append(f"failed: {name}, in {times} of {number} rounds")
    with open(file, "a", encoding="utf-8") as out:
        out.write("\n".join(lines) + "\n")
    print("\n".join(lines))
    return 1 if failed else 0


def main():
    verb, *rest = sys.argv[1:]
    if verb == "tests":
        write_tests(rest[0], pathlib.Path(rest[1]))
    elif verb == "load":
        load(pathlib.Path(rest[0]))
    elif verb == "record":
        return record(rest[0], pathlib.Path(rest[1]), " ".join(rest[2:]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
