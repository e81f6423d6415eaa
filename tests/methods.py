#!/usr/bin/env python3
"""Checks that no class does too much: at most 25 methods.

Counted is every member function that a class or struct declares: private and static ones, overrides and each overload. A class
within another one counts for itself (`Trainer::Impl`). Not counted are constructors, destructors, operators, and accessors: a
body without parameters that only returns a member, or what a member's accessor returns. Pure interfaces (nothing but `= 0`) may
be as long as what they describe. Other exceptions stand in the tables below, and in CONTRIBUTING.md with the reason; an entry
that is not needed any more is a fault.

    methods.py [ROOT]          exits 1 and lists every offence
    methods.py --list [ROOT]   prints the number of methods of each class, the largest first
"""
import sys
from pathlib import Path

from cpp_classes import classes_of, self_test as reader_self_test
from tree_files import CPP, tree_files

LIMIT = 25

# Larger for a reason: class, by its first folder -> why.
EXEMPT = {
    "daemon: Ledger": "typed access to each table of the store: one row of methods a table",
    "worker: GradientSync": "every form of summing gradients; rebuilt as a whole when jobs take several GPUs",
}

# Too large, and to be cut by concept. Every entry is to go.
TO_BE_CUT: set[str] = set()


def methods_of(path, text):
    """Of each class that a file defines: its name, whether it is a pure interface, its number of methods, its line."""
    folder = path.split("/", 1)[0]
    return [(f"{folder}: {own.name}", own.count("plain") == 0, own.count("plain", "pure"), f"{path}:{own.line}")
            for own in classes_of(text)]


def check(classes, exempt, to_be_cut):
    large = {name: (number, where) for name, interface, number, where in classes if number > LIMIT and not interface}
    faults = [f"{where}: {name.split(': ')[1]} has {number} methods, at most {LIMIT}: cut it by concept"
              for name, (number, where) in sorted(large.items()) if name not in exempt and name not in to_be_cut]
    faults += [f"{name}: there is no such class with more than {LIMIT} methods any more: take it out of the table in tests/methods.py"
               for name in sorted([*exempt, *to_be_cut]) if name not in large]
    return faults


def check_reasons(exempt, text):
    return [f"CONTRIBUTING.md: does not name `{name.split(': ')[1]}`, which tests/methods.py exempts: say why it is larger"
            for name in exempt if f"`{name.split(': ')[1]}`" not in text]


def self_test():
    """A method too many must be seen, wherever it hides, and an entry without need must be seen."""
    reader_self_test()

    def fault_of(body, exempt=(), to_be_cut=(), more=""):
        methods = "".join(f"int M{n}(int a);" for n in range(LIMIT))
        return check(methods_of("daemon/a.h", f"class A {{ A(); ~A(); int a() const {{ return a_; }} {methods} {body} }}; {more}"),
                     exempt, to_be_cut)

    assert not fault_of("int a_; std::function<void()> b_; struct B { void Other(); };")
    assert fault_of("private: void Other();") == ["daemon/a.h:1: A has 26 methods, at most 25: cut it by concept"]
    assert fault_of("static void Other() {}") and fault_of("template <class T> void Other(T);") and fault_of("int M1();")
    assert fault_of("struct B { " + "".join(f"void B{n}();" for n in range(LIMIT + 1)) + " };")
    assert not fault_of("void Other();", {"daemon: A"}) and not fault_of("void Other();", (), {"daemon: A"})
    assert fault_of("void Other();", {"client: A"})
    assert fault_of("", {"daemon: A"}) and fault_of("", (), {"daemon: A"}) and fault_of("", {"daemon: Gone"})
    pure = "".join(f"virtual void P{n}() = 0;" for n in range(LIMIT + 1))
    assert not fault_of("", more=f"class P {{ {pure} }};") and fault_of("", more=f"class P {{ {pure} void One(); }};")
    assert check_reasons({"a: B": ""}, "B is large") and not check_reasons({"a: B": ""}, "`B` is large")


def main():
    self_test()
    arguments = [argument for argument in sys.argv[1:] if argument != "--list"]
    root = Path(arguments[0] if arguments else ".")
    classes = [found for path in tree_files(root, CPP) for found in methods_of(path, (root / path).read_text(errors="replace"))]
    if "--list" in sys.argv[1:]:
        rows = sorted(classes, key=lambda row: (-row[2], row[0]))
        return print("\n".join(f"{number:4} {name:50} {where}{' (interface)' if pure else ''}"
                               for name, pure, number, where in rows if number))
    faults = check(classes, EXEMPT, TO_BE_CUT) + check_reasons(EXEMPT, (root / "CONTRIBUTING.md").read_text())
    print("\n".join(faults) if faults else f"{len(classes)} classes, none has more than {LIMIT} methods that is not named")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
