#!/usr/bin/env python3
"""The failed tests of a CTest run and the end of what each has printed, where a reader of a long log looks first: last.

Usage: failed_tests.py RESULTS.xml              print them
       failed_tests.py --names RESULTS.xml      print a regular expression of their names; nothing, where there are more than a few:
                                                so many are no bad luck
       failed_tests.py --list RESULTS.xml       print a line for each
       failed_tests.py --longest RESULTS.xml    print the ten tests that took longest, failed or not
       failed_tests.py --flaky RESULTS.xml AGAIN.xml
                                                print those that passed when they were run again, each with the end of its first
                                                output; exit code 1 if another one failed

The files are what `ctest --output-junit` writes. CTest's own LastTest.log would not do: a test that lists the tests of the same
folder (ctest --show-only) empties it.
"""
import pathlib
import re
import sys
import xml.etree.ElementTree

MOST_LINES = 40  # of one test
MOST_TESTS = 8


def tests_of(path):
    return list(xml.etree.ElementTree.parse(path).getroot().iter("testcase"))


def is_missing(test):
    """It did not run, and was not skipped on purpose: its program is not there."""
    skipped = test.find("skipped")
    why = skipped.get("message", "") if skipped is not None else ""
    return test.get("status") == "notrun" and not why.startswith("SKIP_")


def failed_of(path):
    return [test for test in tests_of(path) if test.get("status") == "fail" or is_missing(test)]


def passed_of(path):
    if not pathlib.Path(path).exists():  # no test was run again
        return set()
    return {test.get("name") for test in tests_of(path) if test.get("status") == "run"}


def print_end(test):
    lines = [line for line in (test.findtext("system-out") or "").splitlines() if line.strip()]
    print("\n".join(line[:300] for line in lines[-MOST_LINES:] or ["(it printed nothing)"]))


def print_ends(failed):
    for test in failed[:MOST_TESTS]:
        print(f"\n=== {test.get('name')} failed")
        print_end(test)
    if len(failed) > MOST_TESTS:
        print(f"\n=== and {len(failed) - MOST_TESTS} more: " + ", ".join(test.get("name") for test in failed[MOST_TESTS:]))


def print_names(failed):
    if len(failed) <= MOST_TESTS:
        print("|".join(f"^{re.escape(test.get('name'))}$" for test in failed))


def print_longest(tests):
    for test in sorted(tests, key=lambda test: -float(test.get("time")))[:10]:
        print(f"{float(test.get('time')):8.1f} s  {test.get('name')}")


def print_flaky(failed, passed):
    """Whether all that failed passed in the end."""
    for test in failed:
        if test.get("name") in passed:
            print(f"\nflaky: {test.get('name')}, passed at try 2; the end of try 1:")
            print_end(test)
    return all(test.get("name") in passed for test in failed)


def main():
    if sys.argv[1] == "--names":
        print_names(failed_of(sys.argv[2]))
    elif sys.argv[1] == "--list":
        for test in failed_of(sys.argv[2]):
            print(f"failed: {test.get('name')}")
    elif sys.argv[1] == "--longest":
        print_longest(tests_of(sys.argv[2]))
    elif sys.argv[1] == "--flaky":
        return 0 if print_flaky(failed_of(sys.argv[2]), passed_of(sys.argv[3])) else 1
    else:
        print_ends(failed_of(sys.argv[1]))
    return 0


if __name__ == "__main__":
    sys.exit(main())
