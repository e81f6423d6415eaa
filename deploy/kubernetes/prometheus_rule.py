#!/usr/bin/env python3
"""Writes overlays/monitoring/prometheus-rule.yaml: the alert rules of deploy/prometheus as the Prometheus operator takes them.
kustomize reads single files only below its own folder. Usage: prometheus_rule.py [--check]

--check writes nothing and fails where the file is not what it would write.
"""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
RULES = HERE.parent / "prometheus/rules/megatrain.yaml"
TARGET = HERE / "overlays/monitoring/prometheus-rule.yaml"
HEAD = """# Written by deploy/kubernetes/prometheus_rule.py from deploy/prometheus/rules/megatrain.yaml.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: megatrain
spec:
"""


def main():
    lines = RULES.read_text().splitlines()
    text = HEAD + "".join(f"  {line}\n" if line else "\n" for line in lines if not line.startswith("#"))
    if "--check" not in sys.argv[1:]:
        TARGET.write_text(text)
    elif not TARGET.exists() or TARGET.read_text() != text:
        sys.exit(f"{TARGET} is not what {pathlib.Path(__file__).name} writes: run it")


if __name__ == "__main__":
    main()
