#!/usr/bin/env python3
"""Builds and tests what a change affects, and says first what that is and why; called by dev.sh."""
import argparse
import json
import os
import subprocess
import sys
from pathlib import Path

from affected import Selection, Graph

ROOT = Path(__file__).resolve().parent.parent
MOST_REASONS = 2


def output_of(*command):
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"dev: {' '.join(command)} failed: {(done.stderr or done.stdout).strip()}")
    return done.stdout


def base_of(wanted):
    """The commit that changes are counted from: where this branch left `wanted`, by default main."""
    for name in [wanted] if wanted else ["main", "origin/main"]:
        done = subprocess.run(["git", "merge-base", name, "HEAD"], cwd=ROOT, capture_output=True, text=True)
        if done.returncode == 0:
            return name, done.stdout.strip()
    sys.exit(f"dev: no common commit with {wanted or 'main'}: name what changes are counted from by --base REF")


def changed_since(commit):
    """Files that differ from that commit: committed, uncommitted, new and deleted ones."""
    tracked = output_of("git", "diff", "--name-only", "--no-renames", commit)
    new = output_of("git", "ls-files", "--others", "--exclude-standard")
    return sorted({*tracked.splitlines(), *new.splitlines()})


def configure(preset, build):
    """Writes the build files, which say what depends on what; anew where they are older than what they are made of."""
    if not (build / "build.ninja").exists():
        print(f"dev: configuring {preset}")
        output_of("cmake", "--preset", preset)
    else:
        output_of("ninja", "-C", str(build), "build.ninja")


def tests_of(preset):
    return json.loads(output_of("ctest", "--preset", preset, "--show-only=json-v1"))["tests"]


def why(reasons):
    return ", ".join(reasons[:MOST_REASONS]) + (f" and {len(reasons) - MOST_REASONS} more" if len(reasons) > MOST_REASONS else "")


def show(title, rows):
    """One line each: what, and because of what."""
    if not rows:
        return
    print(title)
    width = max(len(what) for what in rows)
    for what, reasons in sorted(rows.items()):
        print(f"  {what:{width}}  {why(reasons)}")


def show_selection(selection, build):
    rows = {os.path.relpath(path, build): selection.products.get(path, ["run by tests"]) for path in selection.builds}
    show("build", rows)
    show("run every test of", selection.programs)
    show("run", selection.single)
    if not rows and not selection.single:
        print("nothing to build or run")


def build_and_run(selection, preset, build):
    targets = sorted(os.path.relpath(path, build) for path in selection.builds)
    if targets and subprocess.run(["cmake", "--build", "--preset", preset, "-j", str(os.cpu_count()), "--target", *targets],
                                  cwd=ROOT).returncode != 0:
        return 1
    # CTest numbers tests in the order in which it lists them.
    numbers = [number for number, test in enumerate(tests_of(preset), 1) if selection.picks(test)]
    if not numbers:
        return 0
    wanted = ",".join(map(str, [numbers[0], numbers[0], 1, *numbers]))
    return subprocess.run(["ctest", "--preset", preset, "-j", str(os.cpu_count()), "-I", wanted], cwd=ROOT).returncode


def main():
    parser = argparse.ArgumentParser(prog="dev.sh", description="Builds and tests what changed since main affects, printed first.")
    parser.add_argument("--list", action="store_true", help="print only; configures where that was not done yet")
    parser.add_argument("--base", metavar="REF", help="count changes from where this branch left REF (default: main)")
    parser.add_argument("--files", nargs="+", metavar="FILE", help="as if these files had changed, and no others")
    parser.add_argument("preset", nargs="?", help="default: what scripts/preset.sh prints")
    options = parser.parse_args()
    preset = options.preset or output_of("bash", "scripts/preset.sh").strip()
    build = ROOT / "build" / preset
    if options.files:
        changed = options.files
        print(f"changed (as given): {len(changed)} files")
    else:
        name, commit = base_of(options.base)
        changed = changed_since(commit)
        print(f"changed since {name} ({commit[:8]}): {len(changed)} files")
    for path in changed:
        print(f"  {path}")
    if not changed:
        return 0
    configure(preset, build)
    files = output_of("git", "ls-files", "--cached", "--others", "--exclude-standard").splitlines()
    selection = Selection(Graph(ROOT, build, [path for path in files if (ROOT / path).is_file()]), changed, tests_of(preset))
    show_selection(selection, build)
    sys.stdout.flush()
    return 0 if options.list else build_and_run(selection, preset, build)


if __name__ == "__main__":
    sys.exit(main())
