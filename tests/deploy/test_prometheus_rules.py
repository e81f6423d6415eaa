"""deploy/prometheus by promtool, and what promtool does not see: runbook, tests for every alert, names of metrics."""
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import yaml

import promql_sources as sources
sys.path.append(str(sources.ROOT / "tests"))
import required  # noqa: E402

FOLDER = sources.ROOT / "deploy/prometheus"


def promtool(*args):
    done = subprocess.run(["promtool", *args], capture_output=True, text=True, timeout=300, check=False)
    return done.returncode, done.stdout + done.stderr


class PrometheusRulesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        required.need_programs("promtool", package="prometheus")
        cls.rules = sources.alert_rules()
        cls.cases = [case for path in sorted((FOLDER / "tests").glob("*.yaml"))
                     for case in yaml.safe_load(path.read_text())["tests"]]

    def test_configuration_and_rules_are_clean(self):
        for args in (("config", FOLDER / "prometheus.yml"), ("rules", "--lint=all", "--lint-fatal", sources.RULES)):
            code, text = promtool("check", *map(str, args))
            self.assertEqual(code, 0, text)
            self.assertNotRegex(text, r"(?i)warn|fail|error")

    def test_unit_tests_pass(self):
        files = sorted(map(str, (FOLDER / "tests").glob("*.yaml")))
        self.assertTrue(files)
        code, text = promtool("test", "rules", *files)
        self.assertEqual(code, 0, text)
        self.assertEqual(text.count("SUCCESS"), len(files), text)

    def test_every_alert_is_seen_firing_and_silent(self):
        for rule in self.rules:
            checks = [c for case in self.cases for c in case["alert_rule_test"] if c["alertname"] == rule["alert"]]
            self.assertTrue([c for c in checks if c["exp_alerts"]], f"{rule['alert']}: never seen firing")
            self.assertTrue([c for c in checks if not c["exp_alerts"]], f"{rule['alert']}: never seen silent")
        self.assertLessEqual({c["alertname"] for case in self.cases for c in case["alert_rule_test"]},
                             {rule["alert"] for rule in self.rules})

    def test_every_alert_has_severity_summary_and_runbook(self):
        runbook = (sources.ROOT / "docs/runbook.md").read_text()
        sections = set(re.findall(r"(?m)^## (\w+)$", runbook))
        for rule in self.rules:
            name = rule["alert"]
            self.assertTrue(name.startswith("Megatrain"))
            self.assertIn(rule["labels"]["severity"], ("critical", "warning"))
            self.assertTrue(rule["annotations"]["summary"])
            self.assertEqual(rule["annotations"]["runbook"], f"docs/runbook.md#{name.lower()}")
            self.assertIn(name, sections, "no section in docs/runbook.md")
        self.assertEqual(len({rule["alert"] for rule in self.rules}), len(self.rules))

    def test_every_metric_is_in_a_table(self):
        rows = sources.documented_metrics()
        wrong = {rule["alert"]: names for rule in self.rules if (names := sources.undocumented(rule["expr"], rows))}
        self.assertEqual(wrong, {})

    def test_dashboards_parse_as_promql(self):
        """Each expression as a recording rule, variables filled in: promtool parses them all."""
        rules, number = [], 0
        for path in sources.DASHBOARDS:
            for _, expr in sources.dashboard_expressions(path):
                rules.append({"record": f"test:{number}", "expr": sources.substitute(expr, {})})
                number += 1
        self.assertGreater(number, 80)
        with tempfile.TemporaryDirectory(prefix="mtrules-") as folder:
            path = pathlib.Path(folder) / "rules.yaml"
            path.write_text(yaml.safe_dump({"groups": [{"name": "dashboards", "rules": rules}]}))
            code, text = promtool("check", "rules", str(path))
        self.assertEqual(code, 0, text)


if __name__ == "__main__":
    unittest.main()
