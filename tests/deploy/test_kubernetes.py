"""The manifests as installed: rendered by `kubectl kustomize`, checked against Kubernetes' schemas, and for what schemas do
not say: names that must match, ports that must be declared, a pod that may not become root."""
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

import yaml

from install_tree import BIN, BUILD, SOURCE, prefix
import pypi_packages
import required

CHECKER = pathlib.Path(__file__).resolve().parent / "check_manifests.py"
CUSTOM = {"ServiceMonitor", "PrometheusRule"}


def render(folder, where=None):
    """As installed, or from another folder of manifests."""
    done = subprocess.run(["kubectl", "kustomize", str((where or prefix() / "share/megatrain/kubernetes") / folder)],
                          capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise AssertionError(f"kubectl kustomize {folder}: {done.stderr}")
    return [d for d in yaml.safe_load_all(done.stdout) if d]


def schema_faults(documents):
    """By Kubernetes' own schemas, of the pinned package of PyPI."""
    done = subprocess.run([sys.executable, str(CHECKER)], env=pypi_packages.environment(BUILD, "manifests"),
                          input=json.dumps(documents), capture_output=True, text=True, timeout=120, check=False)
    if done.returncode != 0:
        raise AssertionError(done.stderr)
    return json.loads(done.stdout)


class KubernetesTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        required.need_programs("kubectl", package="kubernetes-client")
        cls.base = render("base")
        cls.monitoring = render("overlays/monitoring")
        cls.gpu = render("overlays/gpu")
        cls.init = render("init")

    def find(self, kind, name, documents=None):
        found = [d for d in documents or self.base if d["kind"] == kind and d["metadata"]["name"] == name]
        self.assertEqual(len(found), 1, f"{kind}/{name}")
        return found[0]

    def pods(self):
        return {d["metadata"]["name"]: d["spec"]["template"] for d in self.base if d["kind"] == "StatefulSet"}

    def test_renders_what_is_listed(self):
        names = {(d["kind"], re.sub(r"-[a-z0-9]{10}$", "", d["metadata"]["name"])) for d in self.base}
        self.assertLessEqual({("StatefulSet", "mt-coordinator"), ("StatefulSet", "mt-worker"), ("Service", "mt-coordinator"),
                              ("Service", "mt-worker"), ("ConfigMap", "mt-coordinator"), ("ConfigMap", "mt-worker"),
                              ("NetworkPolicy", "mt-default-deny"), ("PodDisruptionBudget", "mt-worker"),
                              ("Namespace", "megatrain")}, names)
        for document in self.base:
            if document["kind"] != "Namespace":
                self.assertEqual(document["metadata"]["namespace"], "megatrain", document["metadata"]["name"])

    def test_valid_by_schema(self):
        self.assertEqual(schema_faults(self.base), [])
        self.assertEqual(schema_faults([d for d in self.monitoring if d["kind"] not in CUSTOM]), [])
        self.assertEqual(schema_faults(self.gpu), [])
        self.assertEqual(schema_faults(self.init), [])

    def test_the_schema_check_sees_faults(self):
        def changed(change):
            pod = json.loads(json.dumps(self.find("StatefulSet", "mt-worker")))
            change(pod)
            return pod
        faults = schema_faults([
            self.find("StatefulSet", "mt-worker"),
            changed(lambda pod: pod["spec"].update(replicas="two")),
            changed(lambda pod: pod["spec"]["template"]["spec"]["containers"][0].update(livenessProbes={})),
            changed(lambda pod: pod["spec"].pop("selector")),
            changed(lambda pod: pod.update(apiVersion="apps/v9"))])
        self.assertEqual(len(faults), 4, faults)
        for fault, words in zip(faults, ("spec.replicas: 'two' is not", "livenessProbes", "'selector' is a required",
                                         "no schema of apps/v9")):
            self.assertIn(words, fault)

    def test_only_the_job_that_is_run_once_makes_a_store(self):
        for documents in (self.base, self.gpu, self.monitoring):
            self.assertNotIn("Job", {d["kind"] for d in documents})
            self.assertNotIn("init", [arg for d in documents if d["kind"] == "StatefulSet"
                                      for key in ("containers", "initContainers") for c in d["spec"]["template"]["spec"].get(key, [])
                                      for arg in c.get("command", []) + c.get("args", [])])
        job = self.find("Job", "mt-coordinator-init", self.init)["spec"]["template"]["spec"]
        coordinator = self.find("StatefulSet", "mt-coordinator")
        pod = coordinator["spec"]["template"]["spec"]
        (template,) = coordinator["spec"]["volumeClaimTemplates"]
        claim = self.find("PersistentVolumeClaim", f"{template['metadata']['name']}-mt-coordinator-0", self.init)
        self.assertEqual(claim["spec"], template["spec"])
        self.assertEqual(job["volumes"], [{"name": "state", "persistentVolumeClaim": {"claimName": claim["metadata"]["name"]}}])
        state = next(arg for arg in pod["containers"][0]["args"] if arg.startswith("--state="))
        self.assertEqual(job["containers"][0]["args"], ["init", state])
        self.assertEqual(job["containers"][0]["volumeMounts"], [m for m in pod["containers"][0]["volumeMounts"] if m["name"] == "state"])
        self.assertEqual(job["securityContext"], pod["securityContext"])
        self.assertEqual(job["containers"][0]["image"], pod["containers"][0]["image"])

    def test_services_find_pods_and_ports(self):
        pods = self.pods()
        for service in (d for d in self.base if d["kind"] == "Service"):
            name, spec = service["metadata"]["name"], service["spec"]
            labels = pods[name]["metadata"]["labels"]
            self.assertEqual({k: labels.get(k) for k in spec["selector"]}, spec["selector"])
            ports = {p["name"] for c in pods[name]["spec"]["containers"] for p in c["ports"]}
            self.assertLessEqual({p["targetPort"] for p in spec["ports"]}, ports)
            self.assertEqual(self.find("StatefulSet", name)["spec"]["serviceName"], name)
        worker = self.find("Service", "mt-worker")["spec"]
        self.assertEqual(worker["clusterIP"], "None")
        self.assertTrue(worker["publishNotReadyAddresses"])

    def test_probes_and_flags_agree(self):
        containers = {name: pod["spec"]["containers"][0] for name, pod in self.pods().items()}
        coordinator, worker = containers["mt-coordinator"], containers["mt-worker"]
        flags = dict(a.split("=", 1) for a in coordinator["args"] if "=" in a)
        ports = {p["name"]: p["containerPort"] for p in coordinator["ports"]}
        for flag, port in (("--listen", "api"), ("--http-listen", "http"), ("--health-listen", "health")):
            self.assertEqual(int(flags[flag].rsplit(":", 1)[1]), ports[port])
        for probe, service in (("startupProbe", "megatrain.v1.ready"), ("readinessProbe", "megatrain.v1.ready"),
                               ("livenessProbe", "")):
            grpc = coordinator[probe]["grpc"]
            self.assertEqual((grpc["port"], grpc.get("service", "")), (ports["health"], service))
        for probe, path in (("startupProbe", "/readyz"), ("readinessProbe", "/readyz"), ("livenessProbe", "/livez")):
            self.assertEqual(worker[probe]["httpGet"]["path"], path)
        for container in containers.values():
            probe = container["startupProbe"]
            self.assertEqual(probe["periodSeconds"] * probe["failureThreshold"], 600)
        config = yaml.safe_load(next(d for d in self.base if d["kind"] == "ConfigMap"
                                     and d["metadata"]["name"].startswith("mt-worker"))["data"]["worker.yaml"])
        self.assertEqual(int(config["http_listen"].rsplit(":", 1)[1]), worker["ports"][0]["containerPort"])
        self.assertEqual(config["coordinator"], f"mt-coordinator:{ports['api']}")
        mounts = {m["mountPath"] for m in worker["volumeMounts"]}
        for root in ("state", "data_root", "checkpoint_root"):
            self.assertIn(config[root], mounts)
        # The node's secret outlives the pod.
        claims = {c["metadata"]["name"] for c in self.find("StatefulSet", "mt-worker")["spec"]["volumeClaimTemplates"]}
        where = {m["mountPath"]: m["name"] for m in worker["volumeMounts"]}
        self.assertIn(where[config["state"] + "/identity"], claims)

    def test_programs_take_their_flags(self):
        """--check-config with what the pods pass, $(VARIABLES) and files as the kubelet would give them."""
        for documents in (self.base, self.gpu):
            self.check_flags(documents)

    def check_flags(self, documents):
        variables = {"LOG_LEVEL": "info", "POD_NAME": "mt-worker-0", "POD_IP": "192.0.2.7"}
        config = next(d for d in documents if d["kind"] == "ConfigMap" and "worker.yaml" in d["data"])["data"]["worker.yaml"]
        with tempfile.TemporaryDirectory(prefix="mtpod-") as folder:
            (pathlib.Path(folder) / "worker.yaml").write_text(config)
            self.check_init(folder)
            for pod in (d["spec"]["template"] for d in documents if d["kind"] == "StatefulSet"):
                container = pod["spec"]["containers"][0]
                program = BIN / pathlib.Path(container["command"][0]).name
                args = [re.sub(r"\$\((\w+)\)", lambda m: variables[m.group(1)], a).replace("/etc/megatrain", folder)
                        .replace("--state=/var/lib/megatrain", f"--state={folder}/state")
                        for a in container["args"]]
                for extra, code in (([], 0), (["--no-such-flag"], 64)):
                    done = subprocess.run([program, "--check-config", *args, *extra], capture_output=True, text=True,
                                          timeout=30, check=False)
                    self.assertEqual(done.returncode, code, f"{program.name} {args}: {done.stderr}")

    def check_init(self, folder):
        """The Job that is run once, with the volume's folder in `folder`."""
        container = self.find("Job", "mt-coordinator-init", self.init)["spec"]["template"]["spec"]["containers"][0]
        command = [BIN / pathlib.Path(container["command"][0]).name,
                   *(a.replace("/var/lib/megatrain", f"{folder}/state") for a in container["args"])]
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_pods_are_confined(self):
        for name, pod in self.pods().items():
            spec = pod["spec"]
            self.assertFalse(spec["automountServiceAccountToken"], name)
            self.assertTrue(spec["securityContext"]["runAsNonRoot"])
            self.assertEqual(spec["securityContext"]["seccompProfile"]["type"], "RuntimeDefault")
            self.assertEqual(spec["securityContext"]["fsGroupChangePolicy"], "OnRootMismatch")
            for container in spec["containers"]:
                own = container["securityContext"]
                self.assertFalse(own["allowPrivilegeEscalation"])
                self.assertTrue(own["readOnlyRootFilesystem"])
                self.assertEqual(own["capabilities"], {"drop": ["ALL"]})
                resources = container["resources"]
                self.assertEqual(resources["requests"], resources["limits"], "guaranteed quality of service")
                declared = {v["name"] for v in spec.get("volumes", [])} | {
                    c["metadata"]["name"] for c in self.find("StatefulSet", name)["spec"].get("volumeClaimTemplates", [])}
                self.assertEqual({m["name"] for m in container["volumeMounts"]}, declared)
        shared = next(v for v in self.pods()["mt-worker"]["spec"]["volumes"] if v["name"] == "shared-memory")
        self.assertEqual(shared["emptyDir"], {"medium": "Memory", "sizeLimit": "16Gi"})
        self.assertEqual(self.pods()["mt-worker"]["spec"]["terminationGracePeriodSeconds"], 660)

    def test_network_is_closed_by_default(self):
        deny = self.find("NetworkPolicy", "mt-default-deny")["spec"]
        self.assertEqual((deny["podSelector"], sorted(deny["policyTypes"])), ({}, ["Egress", "Ingress"]))
        self.assertNotIn("ingress", deny)
        self.assertNotIn("egress", deny)
        api = [rule for rule in self.find("NetworkPolicy", "mt-coordinator")["spec"]["ingress"]
               if {"port": "api"} in [{"port": p["port"]} for p in rule["ports"]]]
        self.assertEqual(len(api), 1)
        self.assertTrue(api[0]["from"], "the API is open to everyone")

    def test_config_maps_are_the_ones_that_pods_use(self):
        maps = {d["metadata"]["name"] for d in self.base if d["kind"] == "ConfigMap"}
        used = set()
        for pod in self.pods().values():
            used |= {v["configMap"]["name"] for v in pod["spec"].get("volumes", []) if "configMap" in v}
            used |= {e["configMapRef"]["name"] for c in pod["spec"]["containers"] for e in c.get("envFrom", [])}
        self.assertEqual(used, maps)

    def test_the_gpu_overlay_asks_for_gpus_and_changes_nothing_else(self):
        worker = self.find("StatefulSet", "mt-worker", self.gpu)["spec"]["template"]["spec"]
        container = worker["containers"][0]
        self.assertEqual(container["resources"]["requests"], container["resources"]["limits"])
        self.assertEqual(container["resources"]["limits"]["nvidia.com/gpu"], "8")
        self.assertIn({"name": "NVIDIA_DRIVER_CAPABILITIES", "value": "compute,utility"}, container["env"])
        base = self.pods()["mt-worker"]["spec"]
        for field in ("command", "args", "volumeMounts", "securityContext", "startupProbe"):
            self.assertEqual(container[field], base["containers"][0][field])
        self.assertEqual(worker["securityContext"], base["securityContext"])
        self.assertEqual(self.find("StatefulSet", "mt-coordinator", self.gpu), self.find("StatefulSet", "mt-coordinator"))

    def test_the_sources_render_as_what_is_installed(self):
        for folder, installed in (("base", self.base), ("overlays/monitoring", self.monitoring), ("overlays/gpu", self.gpu),
                                  ("init", self.init)):
            self.assertEqual(render(folder, SOURCE / "deploy/kubernetes"), installed, folder)

    def test_the_overlay_carries_rules_and_dashboards(self):
        rules = next(d for d in self.monitoring if d["kind"] == "PrometheusRule")
        self.assertEqual(rules["spec"], yaml.safe_load((SOURCE / "deploy/prometheus/rules/megatrain.yaml").read_text()))
        boards = self.find("ConfigMap", "megatrain-dashboards", self.monitoring)
        self.assertEqual(boards["metadata"]["labels"], {"grafana_dashboard": "1"})
        self.assertEqual(set(boards["data"]), {"job.json", "fleet.json", "coordinator.json"})
        for name, text in boards["data"].items():
            self.assertEqual(json.loads(text), json.loads((SOURCE / "dashboards" / name).read_text()))
        monitor = next(d for d in self.monitoring if d["kind"] == "ServiceMonitor")["spec"]
        for service in (d for d in self.monitoring if d["kind"] == "Service"):
            labels = service["metadata"]["labels"]
            self.assertEqual({k: labels.get(k) for k in monitor["selector"]["matchLabels"]}, monitor["selector"]["matchLabels"])
            self.assertIn(labels[monitor["jobLabel"]], ("mt-coordinator", "mt-worker"))
            self.assertIn(monitor["endpoints"][0]["port"], {p["name"] for p in service["spec"]["ports"]})


if __name__ == "__main__":
    unittest.main()
