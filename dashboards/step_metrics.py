"""Graphs of the metrics of a training step, as StepRecord declares them (proto/megatrain/v1/metric.proto)."""
import pathlib
import subprocess
import sys
import tempfile

from panels import graph

PROTO = pathlib.Path(__file__).resolve().parent.parent / "proto"
GRAFANA_UNITS = {"s": "s", "tokens/s": "suffix: tok/s", "FLOP/s": "flops", "bytes": "bytes"}  # others: a plain number


def declared():
    """The declaration of each metric of StepRecord that has a panel, by field number."""
    with tempfile.TemporaryDirectory() as folder:
        sources = [f"megatrain/v1/{name}.proto" for name in ("metric", "step")]
        subprocess.run(["protoc", "-I", PROTO, f"--python_out={folder}", *sources], check=True, timeout=60)
        sys.path.insert(0, folder)
        try:
            from megatrain.v1 import metric_pb2, step_pb2  # pylint: disable=import-outside-toplevel
        finally:
            sys.path.remove(folder)
    fields = sorted(step_pb2.StepRecord.DESCRIPTOR.fields, key=lambda field: field.number)
    metrics = [field.GetOptions().Extensions[metric_pb2.metric] for field in fields]
    return [metric for metric in metrics if metric.HasField("panel")]


def unit_of(metric):
    unit = metric.unit + ("/s" if metric.gauge.per_second else "")
    return metric.panel.unit or GRAFANA_UNITS.get(unit, "none")


class StepPanels:
    """The panels of one dashboard. Metrics that it places nowhere come at the end of their row."""

    def __init__(self, selector):
        self.selector = selector
        self.metrics = declared()
        self.placed = set()

    def graph(self, title, *more, **layout):
        """The graph of that title; `more` are (expression, legend) of further curves."""
        metrics = [metric for metric in self.metrics if metric.panel.title == title]
        if not metrics:
            sys.exit(f"no metric of StepRecord declares a panel with the title {title!r}")
        self.placed.add(title)
        curves = [(f"{metric.gauge.name}{{{self.selector}}}", metric.panel.legend) for metric in metrics]
        first = metrics[0]
        return graph(title, [*curves, *more], unit_of(first), log=first.panel.log, description=first.panel.description, **layout)

    def rest(self, row):
        """The graphs of that row that have not been placed."""
        titles = dict.fromkeys(metric.panel.title for metric in self.metrics if metric.panel.row == row)
        return [self.graph(title) for title in titles if title not in self.placed]

    def complete(self):
        """Fails where a metric names a row that the dashboard does not have."""
        lost = sorted({metric.panel.title for metric in self.metrics} - self.placed)
        if lost:
            sys.exit(f"no row of the dashboard shows {', '.join(lost)}")
