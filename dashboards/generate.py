#!/usr/bin/env python3
"""Writes job.json, fleet.json and coordinator.json beside this file. Usage: generate.py [--check]

--check writes nothing and fails if a file differs. Graphs of a step's metrics come from what StepRecord declares, by protoc and
Debian's python3-protobuf (step_metrics.py). Metric names are rows of the METRICS.md files; tests hold every panel to
the rules of README.md and run every expression against a live Prometheus.
"""
import json
import pathlib
import sys

import coordinator_dashboard
import fleet_dashboard
import job_dashboard

HERE = pathlib.Path(__file__).resolve().parent
DASHBOARDS = {"job": job_dashboard, "fleet": fleet_dashboard, "coordinator": coordinator_dashboard}


def main():
    stale = []
    for name, module in DASHBOARDS.items():
        text = json.dumps(module.build(), indent=1, ensure_ascii=False) + "\n"
        path = HERE / f"{name}.json"
        if path.exists() and path.read_text() == text:
            continue
        stale.append(path.name)
        if "--check" not in sys.argv[1:]:
            path.write_text(text)
    if "--check" in sys.argv[1:] and stale:
        sys.exit(f"not what generate.py writes: {' '.join(stale)}")


if __name__ == "__main__":
    main()
