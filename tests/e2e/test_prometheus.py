"""Debian's Prometheus scrapes a real run with the shipped configuration; every dashboard and alert expression returns data.

The run trains, evaluates, saves, is held, released and resumed; then coordinator and agent are each away for a moment.
"""
import json
import math
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest
import urllib.parse

import yaml

from service_harness import ServiceTest, free_port

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "deploy"))
import promql_sources as sources  # noqa: E402
import required  # noqa: E402  (found by what service_harness adds to the path)

SCRAPE_S = 1
WINDOW = "5s"  # $__rate_interval at that scrape interval
VALUES = {"mt_job": "tiny", "mt_namespace": "default"}

# What returns no data, and why. On job.json there may be panels of GPUs only, and today there is none.
NOT_INJECTED = "fault not injected"
EXCEPTIONS = {
    "alert MegatrainNoProgress": NOT_INJECTED,
    "alert MegatrainRankLost": NOT_INJECTED,
    "alert MegatrainNonFiniteLoss": NOT_INJECTED,
    "alert MegatrainCheckpointFailing": NOT_INJECTED,
    "alert MegatrainCheckpointStale": NOT_INJECTED,
    "alert MegatrainRestartLoop": NOT_INJECTED,
    "alert MegatrainStraggler": NOT_INJECTED,
    "alert MegatrainMFUDrop": NOT_INJECTED,
    "alert MegatrainGradNormSpike": NOT_INJECTED,
    "alert MegatrainLossScaleCollapse": NOT_INJECTED,
    "alert MegatrainSkippedSteps": NOT_INJECTED,
    "alert MegatrainWorkerLost": NOT_INJECTED,
    "alert MegatrainStorageFull": NOT_INJECTED,
    "alert MegatrainStateStorageLow": NOT_INJECTED,
    "alert MegatrainHistoryErrors": NOT_INJECTED,
    "alert MegatrainStoreReadOnly": NOT_INJECTED,
    "alert MegatrainCoordinatorSuperseded": NOT_INJECTED,
    "alert MegatrainStepsDropped": NOT_INJECTED,
    "alert MegatrainGrpcErrors": NOT_INJECTED,
    "alert MegatrainGrpcSlow": NOT_INJECTED,
    "alert MegatrainEventsDropped": NOT_INJECTED,
    # A code is counted from its first call on, and none failed by the server's fault.
    'selector grpc_server_handled_total{grpc_code=~"Unknown|Internal|DataLoss|Unavailable|ResourceExhausted"}': NOT_INJECTED,
}


def selectors(expr):
    """The vector selectors of an expression, each with its matchers: what an alert reads, whether it fires or not."""
    found = set()
    for name, matchers in re.findall(r"\b((?:mt|grpc)_[a-z0-9_]+|up)(\{[^}]*\})?", re.sub(
            r"\b(by|on|without)\s*\([^)]*\)", "", expr)):
        if name not in sources.OUR_LABELS and not re.fullmatch(r"grpc_(code|method|service)", name):
            found.add(name + matchers)
    return sorted(found)


@required.programs("prometheus", "promtool", package="prometheus")
class PrometheusTest(ServiceTest):
    def setUp(self):
        super().setUp()
        self.prom_port = free_port()
        folder = self.dir / "prometheus"
        shutil.copytree(sources.ROOT / "deploy/prometheus", folder)
        config = yaml.safe_load((folder / "prometheus.yml").read_text())
        config["global"] = {key: f"{SCRAPE_S}s" for key in config["global"]}
        (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
        worker_port = self.worker_args["node-a"][2]
        for name, port in (("coordinator", self.http_port), ("workers", worker_port)):
            (folder / f"targets/{name}.yaml").write_text(yaml.safe_dump([{"targets": [f"127.0.0.1:{port}"]}]))
        with open(self.dir / "prometheus.log", "ab") as log:
            self.prometheus = subprocess.Popen(
                ["prometheus", f"--config.file={folder}/prometheus.yml", f"--storage.tsdb.path={self.dir}/tsdb",
                 f"--web.listen-address=127.0.0.1:{self.prom_port}"], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.addCleanup(self.stop_prometheus)
        self.wait_for("both targets up", lambda: len(self.query("up == 1")) == 2, limit=60)
        self.start = time.time()

    def stop_prometheus(self):
        if self.prometheus.poll() is None:
            self.prometheus.kill()
            self.prometheus.wait()

    def tearDown(self):
        self.stop_prometheus()
        super().tearDown()

    # --- Prometheus' HTTP API.
    def get(self, path, **parameters):
        answer = json.loads(self.http(self.prom_port, f"/api/v1/{path}?{urllib.parse.urlencode(parameters)}"))
        self.assertEqual(answer["status"], "success", answer)
        return answer["data"]

    def query(self, expr):
        try:
            return self.get("query", query=expr)["result"]
        except OSError:
            return []  # not up yet

    def has_data(self, expr):
        """True where some series had some number at some time of the run. Without an answer, OSError."""
        data = self.get("query_range", query=expr, start=self.start, end=time.time(), step=SCRAPE_S)
        return any(not math.isnan(float(value)) for series in data["result"] for _, value in series["values"])

    def wait_scraped(self, expr):
        """Until Prometheus has seen it, as the test looks for it at the end."""

        def seen():
            try:
                return self.has_data(expr)
            except OSError:
                return False  # too busy to answer

        self.wait_for(f"a scrape of {expr}", seen)

    # --- The run.
    def run_everything(self):
        self.submit("--set", "training.train_iters=1000000", "--set", "training.eval.every_iters=20", "--set",
                    "training.eval.iters=2", "--set", "checkpoint.every_iters=50", "--set", "checkpoint.every=1h")
        self.wait_step(60)
        self.mtctl("checkpoint", "tiny", "--wait")
        self.mtctl("pause", "tiny", "--hold", "--wait")
        self.wait_scraped('mt_job_state{mt_job="tiny",state="PAUSED_HELD"} == 1')
        self.mtctl("resume", "tiny", "--wait")
        self.mtctl("pause", "tiny", "--release", "--wait")
        self.mtctl("resume", "tiny", "--wait")
        self.wait_state("RUNNING")
        watching = self.start_mtctl("metrics", "tiny", "--watch")
        # Idle calls of every kind that the panels tell apart, over more than one window.
        end = time.monotonic() + 8 * SCRAPE_S
        while time.monotonic() < end:
            self.step()
            self.mtctl("get", "jobs")
            time.sleep(SCRAPE_S / 2)
        self.submit("--set", "name=broken", "--set", "training.train_iters=1000000", "--set", "parallel.data=1")
        self.mtctl("kill", "broken", "--yes", "--wait")
        watching.send_signal(signal.SIGINT)
        watching.communicate(timeout=30)

    def fail_a_job(self):
        """A rank that dies takes its job with it; the next one finds its slots free."""
        job = self.job()
        victim = next(r for r in job["ranks"] if r["rank"] == 1)
        os.kill(victim["pid"], signal.SIGKILL)
        self.wait_state("FAILED")
        self.wait_scraped('mt_job_state{mt_job="tiny",state="FAILED"} == 1')

    def restart_daemons(self):
        self.kill_coordinator()
        self.wait_scraped('up{job="mt-coordinator"} == 0')
        self.start_coordinator()
        self.wait_api()
        self.stop_worker("node-a")
        self.wait_scraped('up{job="mt-worker"} == 0')
        self.start_worker("node-a", 2)
        self.wait_nodes(1)

    # --- The test.
    def test_every_expression_returns_data(self):
        self.run_everything()
        self.check_exposition()
        self.fail_a_job()
        self.restart_daemons()
        silent, named = {}, set()
        for where, expr in self.expressions():
            named.add(where)
            if not self.has_data(expr):
                silent[where] = expr
        self.assertGreater(len(named), 120)
        self.assertEqual({k: v for k, v in silent.items() if k not in EXCEPTIONS}, {}, "no data")
        self.assertEqual(set(EXCEPTIONS) - named, set(), "excepted, but there is no such expression")
        self.assertEqual([k for k in EXCEPTIONS if k.startswith("job.json")], [])
        rules = [rule for group in self.get("rules")["groups"] for rule in group["rules"]]
        self.assertEqual(len(rules), len(sources.alert_rules()))
        self.assertEqual({rule["name"]: rule.get("lastError", "") for rule in rules if rule["health"] != "ok"}, {})

    def expressions(self):
        for path in sources.DASHBOARDS:
            for where, expr in sources.dashboard_expressions(path):
                yield where, sources.substitute(expr, VALUES, WINDOW)
            for where, selector, label in sources.variable_queries(path):
                yield where, f'{sources.substitute(selector, VALUES, WINDOW)} and on ({label}) count by ({label}) ' \
                             f'({sources.substitute(selector, VALUES, WINDOW)})'
        read = set()
        for rule in sources.alert_rules():
            yield f"alert {rule['alert']}", rule["expr"]
            read.update(selectors(rule["expr"]))
        for selector in sorted(read):
            yield f"selector {selector}", selector

    def check_exposition(self):
        """What both daemons serve is clean for promtool, and has a row in a METRICS.md."""
        rows = sources.documented_metrics()
        for port in (self.http_port, self.worker_args["node-a"][2]):
            text = self.http(port)
            done = subprocess.run(["promtool", "check", "metrics"], input=text, capture_output=True, text=True, timeout=30,
                                  check=False)
            self.assertEqual((done.returncode, done.stdout + done.stderr), (0, ""))
            served = dict(re.findall(r"(?m)^# TYPE (\S+) (\S+)$", text))
            self.assertTrue(served)
            self.assertEqual({n: k for n, k in served.items() if rows.get(n) != k}, {}, "not as in METRICS.md")


if __name__ == "__main__":
    unittest.main()
