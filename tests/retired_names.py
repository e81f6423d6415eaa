#!/usr/bin/env python3
"""Checks that nothing uses an identifier that was retired, so that a concept has one name.

The list is the table under "## Retired identifiers" in docs/design/glossary.md, two columns `retired` and `now`. The first cell is
an identifier in backticks, or a regular expression for one (with | written \\|), matched against whole identifiers in files of code,
builds and documents, and against the files' names. CHANGELOG.md, which tells of the past, and the glossary itself are left out.

    retired_names.py [ROOT]   exits 1 and lists every use with the name that holds now
"""
import re
import sys
from pathlib import Path

from tree_files import CPP, tree_files

GLOSSARY = "docs/design/glossary.md"
HEADING = "## Retired identifiers"
SUFFIXES = (*CPP, ".py", ".sh", ".cmake", "CMakeLists.txt", ".md")
LEFT_OUT = {GLOSSARY, "CHANGELOG.md"}
RULE = re.compile(r"[\s|:-]+$")


def rows_of(text):
    """(retired, now) of the table, and what is wrong with it."""
    lines = [line.strip() for line in text.splitlines()]
    if HEADING not in lines:
        return [], [f"{GLOSSARY}: has no section '{HEADING}'"]
    section = lines[lines.index(HEADING) + 1:]
    end = next((index for index, line in enumerate(section) if line.startswith("## ")), len(section))
    rows, faults = [], []
    for line in section[:end]:
        if not line.startswith("|") or RULE.match(line):
            continue
        cells = [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        if cells == ["retired", "now"]:
            continue
        name = re.fullmatch(r"`([^`]+)`", cells[0])
        if len(cells) != 2 or not name or not cells[1]:
            faults.append(f"{GLOSSARY}: not a row of `retired` and now: {line}")
            continue
        try:
            pattern = whole(name[1])
        except re.error as error:
            faults.append(f"{GLOSSARY}: {name[1]} is no regular expression: {error}")
            continue
        if pattern.search("x = 1") or pattern.search(" "):
            faults.append(f"{GLOSSARY}: {name[1]} is found everywhere")
        rows.append((name[1], cells[1]))
    names = [name for name, _ in rows]
    faults += [f"{GLOSSARY}: {name} is retired twice" for name in sorted({name for name in names if names.count(name) > 1})]
    faults += [f"{GLOSSARY}: {now}, the name for {name}, is retired itself" for name, now in rows for other in names
               if re.fullmatch(other, now.strip("`"))]
    if not rows and not faults:
        faults.append(f"{GLOSSARY}: the table of retired identifiers has no rows")
    return rows, faults


def whole(name):
    return re.compile(rf"(?<![A-Za-z0-9_])(?:{name})(?![A-Za-z0-9_])")


def check(rows, texts):
    """Every use of a retired name in {path: text}."""
    if not rows:
        return []
    groups = [(whole(name), name, now) for name, now in rows]
    any_of = whole("|".join(f"(?:{name})" for name, _ in rows))
    faults = []
    for path, text in texts.items():
        places = [(f"{path}:{number}", line) for number, line in enumerate(text.splitlines(), 1) if any_of.search(line)]
        places += [(f"{path}: its name", part.split(".")[0]) for part in path.split("/")]
        faults += [f"{where}: {pattern.search(line)[0]} is retired ({name}): {now}"
                   for where, line in places for pattern, name, now in groups if pattern.search(line)]
    return faults


def self_test():
    """Each use and each slip in the table must be seen, a longer identifier must not."""
    page = f"# Glossary\n| `Job` | x |\n\n{HEADING}\n\n| retired | now |\n|---|---|\n| `PendingWords` | `PendingCommands` |\n" \
           "| `(Give\\|Take)Word` | a Command's verbs |\n\n## Other\n| `Other` | y |\n"
    rows, faults = rows_of(page)
    assert rows == [("PendingWords", "`PendingCommands`"), ("(Give|Take)Word", "a Command's verbs")] and not faults, (rows, faults)
    assert not check(rows, {"a/b.cc": "PendingWordsList x; MyPendingWords y; GiveWords(); Job j;"})
    assert check(rows, {"a/b.cc": "\n  PendingWords x;"}) == ["a/b.cc:2: PendingWords is retired (PendingWords): `PendingCommands`"]
    assert check(rows, {"a/b.cc": "x.TakeWord();"}) and check(rows, {"a/GiveWord.cc": ""}) and check(rows, {"PendingWords/a.cc": ""})
    assert "no section" in rows_of("# Glossary\n")[1][0] and "no rows" in rows_of(f"{HEADING}\n\n| retired | now |\n|---|---|\n")[1][0]
    for slip in ("| Word | `Command` |", "| `Word` | |", "| `Word` |", "| `Wo(rd` | `Command` |", "| `\\w+` | `Command` |",
                 "| `PendingWords` | `Other` |", "| `Word` | `PendingWords` |"):
        assert rows_of(page.replace("\n\n## Other", f"\n{slip}\n\n## Other"))[1], slip


def main():
    self_test()
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".")
    glossary = root / GLOSSARY
    if not glossary.is_file():
        sys.exit(f"{GLOSSARY} is missing: it says which identifiers are retired")
    rows, faults = rows_of(glossary.read_text())
    texts = {path: (root / path).read_text(errors="replace") for path in tree_files(root, SUFFIXES) if path not in LEFT_OUT}
    faults += check(rows, texts)
    print("\n".join(faults) if faults else f"{len(texts)} files use none of {len(rows)} retired identifiers")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
