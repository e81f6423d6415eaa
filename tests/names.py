#!/usr/bin/env python3
"""Holds the names in the sources that others depend on once a program has printed or stored them.

Log messages with their keys, flags, environment variables, reasons of errors, types of events and conditions, exit codes and
failpoints: each is a line of golden/names.txt, whatever file it stands in. Lines are added (`names.py ROOT --add`), never
changed and never removed. What programs tell of themselves is held elsewhere: the wire in golden/wire.txt, metrics and tables in
golden/served.txt, keys of files by the fixtures. Run by CTest; exits 1 and lists every difference.
"""
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
GOLDEN = ROOT / "tests/golden/names.txt"
FOLDERS = ("client", "common", "daemon", "kernels", "worker")
# Programs that measure kernels: no part of the service.
LEFT_OUT = ("kernels/bench/",)

COMMENT = re.compile(r'("(?:\\.|[^"\\\n])*")|//[^\n]*|/\*.*?\*/', re.DOTALL)
LITERAL = re.compile(r'"((?:\\.|[^"\\\n])*)"')
LOG_CALL = re.compile(r"\blog::(?:Debug|Info|Warn|Error|Write)\(")
LOG_KEY = re.compile(r'\{\s*"([A-Za-z_0-9]+)"\s*,')
# A literal of this shape is a name wherever it stands.
SHAPES = {
    "flag": re.compile(r"(--[a-z][a-z0-9-]+)(?:,.*|=.*)?"),
    "reason or variable": re.compile(r"([A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+)"),
    "type": re.compile(r"([A-Z][a-z]+(?:[A-Z][a-z]+)+)"),
}
EXIT_CODE = re.compile(r"\b(kExit[A-Z]\w*) = (\d+)")
EVENT = re.compile(r'\.type = (?:[^",;]*"\w+")+')
FAILPOINT = re.compile(r'\bAt\((args, )?"([a-z_]+)"')


def sources():
    listed = subprocess.run(["git", "ls-files", *FOLDERS], cwd=ROOT, capture_output=True, text=True, check=False)
    names = listed.stdout.split("\n") if listed.returncode == 0 and listed.stdout else [
        str(path.relative_to(ROOT)) for folder in FOLDERS for path in (ROOT / folder).rglob("*")]
    for name in sorted(names):
        path = ROOT / name
        if name.endswith((".h", ".cc", ".cu", ".cuh")) and not name.startswith(LEFT_OUT) and path.exists():
            yield name, COMMENT.sub(lambda m: m.group(1) or "", path.read_text())


def call_text(text, start):
    """What stands between the parenthesis before `start` and its partner."""
    depth, at = 1, start
    while depth and at < len(text):
        literal = LITERAL.match(text, at)
        if literal:
            at = literal.end()
            continue
        depth += {"(": 1, ")": -1}.get(text[at], 0)
        at += 1
    return text[start:at - 1]


def log_lines(text):
    for call in LOG_CALL.finditer(text):
        inside = call_text(text, call.end())
        fields = inside.find("{{")
        head = inside if fields < 0 else inside[:fields]
        message = "".join(LITERAL.findall(head))
        keys = LOG_KEY.findall(inside[fields:]) if fields >= 0 else []
        yield f'log "{message}" {" ".join(keys)}'.rstrip()


def names_of(text, folder):
    """`folder`: the first one of the file's path."""
    yield from log_lines(text)
    for literal in LITERAL.findall(text):
        for kind, shape in SHAPES.items():
            found = shape.fullmatch(literal)
            if found and kind == "flag":
                yield f"flag of {folder} {found.group(1)}"
            elif found and not (kind == "type" and folder == "kernels"):  # there: names of ops, in messages of bugs
                yield f"{kind} {found.group(1)}"
    for event in EVENT.findall(text):
        yield from (f"type {name}" for name in LITERAL.findall(event))
    for name, value in EXIT_CODE.findall(text):
        yield f"exit code {name} = {value}"
    for raising, point in FAILPOINT.findall(text):
        yield f"failpoint {'of a fence' if raising else 'of a save'} {point}"


def check_itself():
    """A text with one name of each kind, so that a pattern that finds nothing is noticed."""
    text = ('log::Info("a step", {{"loss", f("{}", 1)}, {"lr", 2}}); "--log-root" "WORD_REFUSED" "RankFailed" '
            'kExitIo = 74; At("renamed", x) At(args, "found") // "Not_IN" At("comment")')
    found = list(names_of(COMMENT.sub(lambda m: m.group(1) or "", text), "worker"))
    assert found == ['log "a step" loss lr', "flag of worker --log-root", "reason or variable WORD_REFUSED", "type RankFailed",
                     "exit code kExitIo = 74", "failpoint of a save renamed", "failpoint of a fence found"], found


def main():
    check_itself()
    now = {line for name, text in sources() for line in names_of(text, name.split("/")[0])}
    golden = {line for line in GOLDEN.read_text().split("\n") if line and not line.startswith("#")}
    if "--add" in sys.argv:
        with open(GOLDEN, "a", encoding="utf-8") as file:
            file.writelines(line + "\n" for line in sorted(now - golden))
        golden |= now
    for line in sorted(golden - now):
        print(f"changed or removed: {line}")
    for line in sorted(now - golden):
        print(f"not in tests/golden/names.txt (tests/names.py . --add appends it): {line}")
    return 0 if golden == now else 1


if __name__ == "__main__":
    sys.exit(main())
