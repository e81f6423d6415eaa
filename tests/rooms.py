#!/usr/bin/env python3
"""Checks that no folder holds more concepts than a reader can keep in mind: at most 25 rooms.

A room is a concept: the `.h`, `.cc`, `.cu` and `.cuh` of one stem count once, and a file without a header of its own whose stem
continues that of a header beside it (allocation_end.cc, allocation.h) belongs to that header's room. A Python or shell file is a
room. Subfolders count for themselves. A flat list of alike things is one room, if the table below says so and why; an entry
that is not needed any more is a fault.

    rooms.py [ROOT]            exits 1 and lists every offence
    rooms.py --list [FOLDER]   prints each folder's number of rooms, the fullest first, or the rooms of one folder
"""
import sys
from collections import defaultdict
from fnmatch import fnmatchcase as fnmatch
from pathlib import PurePosixPath

from tree_files import CPP, tree_files

LIMIT = 25
SUFFIXES = (*CPP, ".py", ".sh")

# Flat lists of alike things: folders, the stems in them that count as one room together, and what each is.
ALIKE = [
    ("client/commands", "*", "a verb of mtctl each, and what several verbs share"),
    ("common/spec", "check_*", "a family of the job spec's cross-field rules each"),
]

# Too full, and to be split by concept. Every entry is to go.
TO_BE_SPLIT: set[str] = set()


def rooms_of(names):
    """The rooms among the files of one folder: room -> its files."""
    paths = [PurePosixPath(name) for name in names]
    headers = {path.stem for path in paths if path.suffix in (".h", ".cuh")}
    rooms = defaultdict(list)
    for path in paths:
        stem = path.stem
        if path.suffix in CPP and stem not in headers:
            stem = max((header for header in headers if stem.startswith(header + "_")), key=len, default=stem)
        rooms[stem if path.suffix in CPP else path.name].append(path.name)
    return dict(rooms)


def folders_of(files):
    folders = defaultdict(list)
    for path in map(PurePosixPath, files):
        folders[str(path.parent)].append(path.name)
    return {folder: rooms_of(names) for folder, names in folders.items()}


def count(folder, rooms, alike):
    """Rooms of a folder, where those of a flat list are one together."""
    lists = set()
    single = 0
    for room in rooms:
        entry = next((entry for entry in alike if fnmatch(folder, entry[0]) and fnmatch(room, entry[1])), None)
        if entry is None:
            single += 1
        else:
            lists.add(entry)
    return single + len(lists)


def check(files, alike, to_be_split):
    folders = folders_of(files)
    counts = {folder: count(folder, rooms, alike) for folder, rooms in folders.items()}
    faults = [f"{folder}: {number} rooms, at most {LIMIT}: split the folder by concept"
              for folder, number in sorted(counts.items()) if number > LIMIT and folder not in to_be_split]
    faults += [f"{folder}: has {counts.get(folder, 0)} rooms and need not be split: take it out of the table in tests/rooms.py"
               for folder in sorted(to_be_split) if counts.get(folder, 0) <= LIMIT]
    for entry in alike:
        others = [other for other in alike if other != entry]
        if not any(count(folder, rooms, others) > LIMIT for folder, rooms in folders.items() if fnmatch(folder, entry[0])):
            faults.append(f"{entry[0]}: no folder needs that {entry[1]} counts once: take it out of the table in tests/rooms.py")
    return faults


def self_test():
    """One room too many must be seen, what belongs together must count once, and an entry without need must be seen."""
    full = [f"a/room{n}.cc" for n in range(LIMIT)]
    assert not check(full, [], set())
    assert check([*full, "a/other.h"], [], set()) == ["a: 26 rooms, at most 25: split the folder by concept"]
    assert not check([*full, "a/room1.h", "a/room1.cu", "a/b/other.cc"], [], set())
    assert not check([*full, "a/other.h"], [], {"a"})
    assert check(full, [], {"a"}) and check(full, [], {"gone"}) and check(full, [("a", "*", "")], set())
    verbs = [("a", "verb_*", "a verb each")]
    assert not check([*full[1:], "a/verb_1.cc", "a/verb_2.cc"], verbs, set())
    assert check([*full, "a/verb_1.cc", "a/verb_2.cc"], verbs, set()) and check([*full[1:], "b/verb_1.cc", "a/verb_2.cc"], verbs, set())
    assert set(rooms_of(["job.h", "job_end.cc", "job_keeper.h", "job_keeper_end.cc", "jobless.cc", "main.cc", "job.py"])) == \
        {"job", "job_keeper", "jobless", "main", "job.py"}
    assert set(rooms_of(["flash.h", "flash_tile.cuh", "flash_grad.cu"])) == {"flash", "flash_tile"}


def print_list(folders, folder):
    if folder is not None:
        return print("\n".join(f"{room}: {' '.join(names)}" for room, names in sorted(folders[folder].items())))
    counts = {name: count(name, rooms, ALIKE) for name, rooms in folders.items()}
    print("\n".join(f"{number:4} {name}" for name, number in sorted(counts.items(), key=lambda item: (-item[1], item[0]))))


def main():
    self_test()
    arguments = sys.argv[1:]
    if arguments[:1] == ["--list"]:
        return print_list(folders_of(tree_files(".", SUFFIXES)), arguments[1] if len(arguments) > 1 else None)
    files = tree_files(arguments[0] if arguments else ".", SUFFIXES)
    faults = check(files, ALIKE, TO_BE_SPLIT)
    print("\n".join(faults) if faults else f"{len(files)} files, no folder has more than {LIMIT} rooms")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
