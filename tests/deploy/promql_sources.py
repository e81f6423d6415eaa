"""Every PromQL expression that is shipped: of dashboards' panels, variables and annotations, and of alert rules."""
import json
import pathlib
import re

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy/prometheus/rules/megatrain.yaml"
DASHBOARDS = sorted((ROOT / "dashboards").glob("*.json"))
OUR_LABELS = {"mt_job", "mt_namespace"}


def panels(board):
    """All panels but rows."""
    return [p for p in board["panels"] if p["type"] != "row"]


def load(path):
    return json.loads(path.read_text())


def dashboard_expressions(path):
    """[(where, expression)], variables as written."""
    board = load(path)
    found = [(f"{path.name}: {p['title']}/{t['refId']}", t["expr"]) for p in panels(board) for t in p["targets"]]
    found += [(f"{path.name}: annotation {a['name']}", a["expr"]) for a in board["annotations"]["list"]]
    return found


def variable_queries(path):
    """[(where, metric selector, label)] of label_values() variables."""
    found = []
    for item in load(path)["templating"]["list"]:
        if item["type"] == "query":
            match = re.fullmatch(r"label_values\((.+), *(\w+)\)", item["definition"])
            found.append((f"{path.name}: variable {item['name']}", match.group(1), match.group(2)))
    return found


def alert_rules():
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def substitute(expr, values, rate_interval="1m"):
    """As Grafana does it; a variable that is not in `values` is All."""
    expr = expr.replace("$__rate_interval", rate_interval).replace("$__interval", rate_interval)
    return re.sub(r"\$\{?(\w+)\}?", lambda m: values.get(m.group(1), ".*"), expr)


def metric_names(expr):
    """Names of metrics in an expression, without their labels and Grafana's variables."""
    bare = re.sub(r'"[^"]*"', '""', expr)  # no label values
    bare = re.sub(r"\$\{?\w+\}?", "", bare)
    bare = re.sub(r"\b(by|on|without|ignoring|group_left|group_right)\s*\([^)]*\)", "", bare)
    bare = re.sub(r"\{[^}]*\}", "", bare)
    return set(re.findall(r"\b((?:mt|grpc)_[a-z0-9_]+)\b", bare)) - OUR_LABELS


def documented_metrics():
    """{name: type} of the rows of every METRICS.md."""
    rows = {}
    for folder in ("daemon", "worker"):
        for path in sorted((ROOT / folder).rglob("METRICS.md")):
            for name, kind in re.findall(r"(?m)^\| `((?:mt|grpc)_[a-z0-9_]+)`[ *]*\| *(\w+)", path.read_text()):
                rows[name] = kind
    return rows


def undocumented(expr, rows):
    """Names of an expression that no table has; histograms by their parts."""
    wrong = []
    for name in metric_names(expr):
        base = re.sub(r"_(bucket|sum|count)$", "", name)
        if name not in rows and rows.get(base) != "histogram":
            wrong.append(name)
    return sorted(wrong)
