"""The dashboards against the rules of dashboards/README.md."""
import re
import subprocess
import sys
import unittest

import yaml

import promql_sources as sources

JOB_VARIABLES = {"datasource", "mt_job", "rank", "node"}
DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


class DashboardTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.boards = {path.stem: sources.load(path) for path in sources.DASHBOARDS}

    def each_panel(self):
        for name, board in self.boards.items():
            for panel in sources.panels(board):
                yield f"{name}: {panel['title']}", panel

    def test_committed_files_are_what_the_generator_writes(self):
        done = subprocess.run([sys.executable, "-B", str(sources.ROOT / "dashboards/generate.py"), "--check"],
                              capture_output=True, text=True, timeout=30, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_the_three_dashboards(self):
        self.assertEqual(set(self.boards), {"job", "fleet", "coordinator"})
        uids = [board["uid"] for board in self.boards.values()]
        self.assertEqual(len(set(uids)), 3)
        for board in self.boards.values():
            self.assertLessEqual(len(board["uid"]), 40)
            self.assertRegex(board["uid"], r"^[a-z-]+$")
            self.assertGreaterEqual(board["schemaVersion"], 39)
            self.assertIn("id", board)
            self.assertIsNone(board["id"])
            self.assertNotIn("__inputs", board)
            self.assertNotIn("__requires", board)
            self.assertTrue(board["title"])
            self.assertGreaterEqual(len(sources.panels(board)), 10)

    def test_variables(self):
        for name, board in self.boards.items():
            variables = {v["name"]: v for v in board["templating"]["list"]}
            self.assertEqual(variables["datasource"]["type"], "datasource")
            used = set(re.findall(r"\$\{?(\w+)", " ".join(e for _, e in sources.dashboard_expressions(
                sources.ROOT / f"dashboards/{name}.json")))) - {"__rate_interval"}
            self.assertEqual(used - set(variables), set(), f"{name}: used but not declared")
            if name != "coordinator":
                self.assertLessEqual(JOB_VARIABLES, set(variables), name)
                self.assertEqual(variables["mt_job"]["definition"], "label_values(mt_job_state, mt_job)")

    def test_every_panel_has_data_source_unit_and_thresholds(self):
        for where, panel in self.each_panel():
            self.assertEqual(panel["datasource"], DATASOURCE, where)
            defaults = panel["fieldConfig"]["defaults"]
            self.assertTrue(defaults["unit"], where)
            steps = defaults["thresholds"]["steps"]
            self.assertIsNone(steps[0]["value"], f"{where}: the first step has no lower end")
            values = [step["value"] for step in steps[1:]]
            self.assertEqual(values, sorted(values), where)
            self.assertTrue(panel["targets"], where)
            for target in panel["targets"]:
                self.assertEqual(target["datasource"], DATASOURCE, where)
                self.assertTrue(target["expr"], where)
            self.assertEqual(len({t["refId"] for t in panel["targets"]}), len(panel["targets"]), where)

    def test_rates_follow_the_scrape_interval(self):
        for path in sources.DASHBOARDS:
            for where, expr in sources.dashboard_expressions(path):
                for function, window in re.findall(r"\b(\w+)\([^()\[\]]*\[([^\]]+)\]", expr):
                    if function in ("rate", "irate", "increase", "delta"):
                        self.assertEqual(window, "$__rate_interval", where)
                self.assertNotRegex(expr, r"\birate\(", where)

    def test_panels_do_not_overlap(self):
        for name, board in self.boards.items():
            taken = {}
            for panel in board["panels"]:
                grid = panel["gridPos"]
                self.assertLessEqual(grid["x"] + grid["w"], 24, panel["title"])
                for x in range(grid["x"], grid["x"] + grid["w"]):
                    for y in range(grid["y"], grid["y"] + grid["h"]):
                        other = taken.setdefault((x, y), panel["title"])
                        self.assertIs(other, panel["title"], f"{name}: {panel['title']} over {other}")
            self.assertEqual(len({p["id"] for p in board["panels"]}), len(board["panels"]), name)

    def test_restarts_and_checkpoints_are_marked(self):
        for name in ("job", "fleet"):
            marks = {a["name"]: a for a in self.boards[name]["annotations"]["list"]}
            self.assertIn("mt_job_restarts_total", marks["Restart"]["expr"])
            self.assertIn("mt_checkpoint_last_success_timestamp_seconds", marks["Checkpoint"]["expr"])
            for mark in marks.values():
                self.assertTrue(mark["enable"])
                self.assertEqual(mark["datasource"], DATASOURCE)

    def test_every_metric_is_in_a_table(self):
        rows = sources.documented_metrics()
        self.assertGreater(len(rows), 40)
        wrong = {}
        for path in sources.DASHBOARDS:
            queries = sources.dashboard_expressions(path)
            queries += [(where, selector) for where, selector, _ in sources.variable_queries(path)]
            for where, expr in queries:
                names = [n for n in sources.undocumented(expr, rows) if n != "up"]
                if names:
                    wrong[where] = names
        self.assertEqual(wrong, {})

    def test_provisioning(self):
        folder = sources.ROOT / "dashboards/provisioning"
        provider, = yaml.safe_load((folder / "dashboards/megatrain.yaml").read_text())["providers"]
        self.assertEqual(provider["type"], "file")
        self.assertTrue(provider["options"]["path"].endswith("/share/megatrain/dashboards"))
        source, = yaml.safe_load((folder / "datasources/prometheus.yaml").read_text())["datasources"]
        scrape = yaml.safe_load((sources.ROOT / "deploy/prometheus/prometheus.yml").read_text())["global"]
        self.assertEqual(source["jsonData"]["timeInterval"], scrape["scrape_interval"])


if __name__ == "__main__":
    unittest.main()
