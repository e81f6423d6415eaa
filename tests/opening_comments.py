#!/usr/bin/env python3
"""Checks that every source file opens with a comment: what it is and why. A C++ or CUDA file begins with it, a script has it after
the #! line, a Python file may have a docstring.

    opening_comments.py [ROOT]          exits 1 and lists every file without one
    opening_comments.py --list [ROOT]   prints them by folder, with their number, and exits 0
"""
import re
import sys
from collections import Counter
from pathlib import Path

from tree_files import CPP, tree_files

LEAST_WORDS = 4
# Comments that speak to tools, and say nothing of the file.
DIRECTIVE = re.compile(r"\s*(NOLINT|clang-format|IWYU|shellcheck|-\*-|type:|noqa|pylint|coding|Copyright|SPDX)")


def opening_of(path, text):
    """The text of the comment that a file opens with; empty: none."""
    lines = text.lstrip("\ufeff").splitlines()
    if not path.endswith(CPP):
        lines = lines[1:] if lines and lines[0].startswith("#!") else lines
        while lines and not lines[0].strip():
            lines = lines[1:]
    mark = "//" if path.endswith(CPP) else "#"
    if path.endswith(".py"):
        docstring = re.match(r'[rR]?("""|\'\'\')(.*?)\1', "\n".join(lines), re.DOTALL)
        if docstring:
            return docstring[2]
    comment = []
    for line in lines:
        if not line.startswith(mark):
            break
        if not DIRECTIVE.match(line[len(mark):]):
            comment.append(line[len(mark):])
    return "\n".join(comment)


def has_opening(path, text):
    return len(re.findall(r"[A-Za-z]\w*", opening_of(path, text))) >= LEAST_WORDS


def self_test():
    """A file of each kind with an opening comment passes, the same file without does not."""
    good = [("a.cc", "// The step of one rank.\n#include <vector>"), ("a.cuh", "// Copies\n// from global memory.\n"),
            ("a.sh", "#!/bin/sh\n# Builds all and tests.\nset -e"), ("a.py", "# What the tests share.\nimport re"),
            ("a.py", '#!/usr/bin/python3\n"""Reads the\ntable whole."""')]
    bad = [("a.cc", '#include "a.h"\n\n// The step of one rank.'), ("a.h", "#pragma once\n// What a step is."), ("a.cc", ""),
           ("a.cc", "// NOLINTBEGIN(of all these kinds)\n#include <vector>"), ("a.cc", "// Tests.\n"),
           ("a.cc", "\n// The step of one rank."),
           ("a.sh", "#!/usr/bin/env bash\nset -euo pipefail\n# Builds all and tests."),
           ("a.py", '#!/usr/bin/env python3\nimport re\n"""Reads the table whole."""')]
    for path, text in good:
        assert has_opening(path, text), text
    for path, text in bad:
        assert not has_opening(path, text), text


def main():
    self_test()
    arguments = [argument for argument in sys.argv[1:] if argument != "--list"]
    root = Path(arguments[0] if arguments else ".")
    files = tree_files(root, (*CPP, ".py", ".sh"))
    bare = [path for path in files if not has_opening(path, (root / path).read_text(errors="replace"))]
    if "--list" in sys.argv[1:]:
        folders = Counter(path.rsplit("/", 1)[0] for path in bare)
        for folder, number in sorted(folders.items(), key=lambda item: (-item[1], item[0])):
            print(f"{number:4} {folder}: " + " ".join(path.rsplit("/", 1)[1] for path in bare if path.rsplit("/", 1)[0] == folder))
        return print(f"{len(bare)} of {len(files)} files do not open with a comment")
    if bare:
        print("\n".join(f"{path}: does not open with a comment that says what it is and why" for path in bare))
    else:
        print(f"{len(files)} files open with a comment")
    sys.exit(1 if bare else 0)


if __name__ == "__main__":
    main()
