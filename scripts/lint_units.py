#!/usr/bin/env python3
"""Joins the sources of a compile_commands.json into few large units for clang-tidy, whose time goes into the headers: it looks
at all of their code once a unit, for up to 128 sources.

    lint_units.py BUILD_DIR     reads BUILD_DIR/compile_commands.json, writes BUILD_DIR/joined/{NN.cc,compile_commands.json}, prints the units

Sources of one folder share a namespace, so a name that two of them keep to themselves is a redefinition where they meet: rename one.
Units are filled with sources of different folders as far as that goes, and hold one main() at most: what has one goes first, so that each
has a large unit of its own.
"""
import itertools
import json
import re
import shlex
import sys
from pathlib import Path

MOST_SOURCES = 128
NOT_OURS = ("/proto/", "/tests/", "/gen/")


def sources_of(path):
    """A file of CMake's unity build lists sources; any other is one."""
    if "/Unity/" not in path:
        return [path]
    return re.findall(r'#include "(.+)"', Path(path).read_text())


def flags_of(entry):
    """What decides how code is compiled, and what only adds to it: include folders and macros."""
    core, extra = [], []
    words = itertools.dropwhile(lambda word: not word.startswith("-"), shlex.split(entry["command"]))
    for word in words:
        if word in ("-o", "-c"):
            next(words)
        elif word == "-isystem":
            extra.append((word, next(words)))
        elif word == "-pthread" or word.startswith(("-I", "-D")):
            extra.append((word,))
        elif word not in ("-fPIC", "-fPIE"):
            core.append(word)
    return tuple(core), extra


class Unit:
    def __init__(self):
        self.sources, self.folders, self.extra = [], set(), {}

    def takes(self, sources):
        if len(self.sources) + len(sources) > MOST_SOURCES or self.folders & folders_of(sources):
            return False
        return count_mains(self.sources) + count_mains(sources) <= 1

    def add(self, sources, extra):
        self.sources += sources
        self.folders |= folders_of(sources)
        self.extra.update(dict.fromkeys(extra))


def folders_of(sources):
    return {str(Path(source).parent) for source in sources}


def count_mains(sources):
    return sum(re.search(r"^int main\(", Path(source).read_text(), re.MULTILINE) is not None for source in sources)


def join(entries):
    """Units by the flags they need."""
    groups = {}
    parts = [(sources_of(entry["file"]), *flags_of(entry)) for entry in entries if not any(part in entry["file"] for part in NOT_OURS)]
    for sources, core, extra in sorted(parts, key=lambda part: (count_mains(part[0]) == 0, -len(part[0]), part[0])):
        units = groups.setdefault(core, [])
        unit = next((unit for unit in units if unit.takes(sources)), None)
        if unit is None:
            unit = Unit()
            units.append(unit)
        unit.add(sources, extra)
    return groups


def main():
    build = Path(sys.argv[1]).resolve()
    joined = build / "joined"
    joined.mkdir(exist_ok=True)
    for old in joined.glob("*.cc"):
        old.unlink()
    commands = []
    for core, units in join(json.loads((build / "compile_commands.json").read_text())).items():
        for unit in units:
            path = joined / f"{len(commands):02}.cc"
            path.write_text("".join(f'#include "{source}"\n' for source in unit.sources))
            words = ["clang++", *core, *(word for extra in unit.extra for word in extra), "-c", str(path)]
            commands.append({"directory": str(build), "file": str(path), "command": shlex.join(words)})
            print(path)
    (joined / "compile_commands.json").write_text(json.dumps(commands, indent=1))


if __name__ == "__main__":
    main()
