"""`cmake --install` lays out everything a machine needs, and nothing under /etc."""
import unittest

from install_tree import SOURCE, prefix, root

EXPECTED = """
lib/systemd/system/mt-coordinator.service
lib/systemd/system/mt-worker.service
lib/sysusers.d/megatrain.conf
lib/tmpfiles.d/megatrain.conf
share/megatrain/systemd/coordinator.env
share/megatrain/systemd/worker.env
share/megatrain/prometheus/prometheus.yml
share/megatrain/prometheus/rules/megatrain.yaml
share/megatrain/dashboards/job.json
share/megatrain/dashboards/fleet.json
share/megatrain/dashboards/coordinator.json
share/megatrain/dashboards/provisioning/dashboards/megatrain.yaml
share/megatrain/dashboards/provisioning/datasources/prometheus.yaml
share/megatrain/dashboards/kustomization.yaml
share/megatrain/kubernetes/base/kustomization.yaml
share/megatrain/kubernetes/overlays/monitoring/prometheus-rule.yaml
share/megatrain/docker/Dockerfile
share/megatrain/examples/quickstart.yaml
share/doc/megatrain/operations.md
share/doc/megatrain/runbook.md
share/doc/megatrain/api.md
share/doc/megatrain/README.md
share/man/man1/mtctl.1
share/man/man1/mtctl-submit.1
share/bash-completion/completions/mtctl
share/zsh/site-functions/_mtctl
share/fish/vendor_completions.d/mtctl.fish
""".split()


class InstallTest(unittest.TestCase):
    def test_every_part_is_there(self):
        missing = [path for path in EXPECTED if not (prefix() / path).is_file()]
        self.assertEqual(missing, [])

    def test_every_proto_is_there(self):
        wanted = sorted(p.name for p in (SOURCE / "proto/megatrain/v1").glob("*.proto"))
        self.assertTrue(wanted)
        self.assertEqual(sorted(p.name for p in (prefix() / "share/megatrain/proto/megatrain/v1").iterdir()), wanted)

    def test_nothing_an_administrator_edits_is_overwritten(self):
        inside = {p.relative_to(root()).parts[0] for p in root().rglob("*") if p.is_file()}
        self.assertNotIn("etc", inside)

    def test_no_development_files(self):
        odd = [str(p) for p in root().rglob("*") if p.suffix in (".py", ".pyc") and "examples" not in p.parts]
        self.assertEqual(odd, [])


if __name__ == "__main__":
    unittest.main()
