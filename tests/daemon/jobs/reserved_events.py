#!/usr/bin/env python3
"""Checks that exactly the reserved events of jobs are raised nowhere, and that the design page names them.

daemon/jobs/job_states.cc lists the reserved events in one place. The code raises an event by `Raise(job, JobEvent::kX, ...)`
or `Apply(job, JobEvent::kX, ...)`; mentioning one (`Allows`) does not count. Run by CTest; exits 1 and lists every offence.
"""
import re
import sys
from pathlib import Path

RAISED = re.compile(r"\b(?:Raise|Apply)\(\s*\*?\w+,\s*JobEvent::(k\w+)")
RESERVED = re.compile(r"\bReservedEvent\{(k\w+),")


def events_of(header):
    """The enumerators in order."""
    body = re.search(r"enum class JobEvent \{(.*?)\};", header, re.S).group(1)
    return re.findall(r"^\s*(k\w+),", body, re.M)


def names_of(table):
    """EventName's texts in order."""
    body = re.search(r"kNumJobEvents> kNames = \{(.*?)\};", table, re.S).group(1)
    return re.findall(r'"([^"]*)"', body)


def faults(events, reserved, raised):
    out = [f"{event} is reserved and raised: take it out of the reserved list" for event in events if event in reserved & raised]
    out += [f"{event} is raised nowhere: raise it or list it as reserved" for event in events if event not in reserved | raised]
    out += [f"{event} is no event" for event in sorted((reserved | raised) - set(events))]
    return out


def self_test():
    assert RAISED.findall("tools_.raiser->Raise(stored, JobEvent::kHold, why);") == ["kHold"]
    assert RAISED.findall("Apply(*stored,\n  JobEvent::kKill, {})") == ["kKill"]
    assert not RAISED.findall("Allows(position, JobEvent::kHold)")
    assert not faults(["kA", "kB"], {"kB"}, {"kA"})
    assert len(faults(["kA", "kB"], {"kB"}, {"kA", "kB"})) == 1
    assert len(faults(["kA", "kB"], set(), {"kA"})) == 1
    assert len(faults(["kA"], {"kC"}, {"kA"})) == 1


def main():
    self_test()
    root = Path(sys.argv[1])
    jobs = root / "daemon/jobs"
    table = (jobs / "job_states.cc").read_text()
    events = events_of((jobs / "job_states.h").read_text())
    reserved = set(RESERVED.findall(table))
    sources = [path for path in sorted((root / "daemon").rglob("*")) if path.suffix in (".cc", ".h") and jobs not in path.parents]
    raised = {event for path in sources for event in RAISED.findall(path.read_text())}
    found = faults(events, reserved, raised)
    page = (root / "docs/design/control-plane.md").read_text()
    section = "\n".join(line for line in page[page.index("\n## Reserved"):].splitlines() if line.startswith("|"))
    for event, name in zip(events, names_of(table), strict=True):
        if (event in reserved) != (f'"{name}"' in section):
            found.append(f'{event}: section "Reserved" of docs/design/control-plane.md does not agree about "{name}"')
    print("\n".join(found) if found else f"{len(events)} events, {len(reserved)} of them reserved and raised nowhere")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
