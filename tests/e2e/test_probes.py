"""What Kubernetes probes: grpc.health.v1 on a port of its own, /livez and /readyz of both daemons."""
import subprocess
import time
import unittest
import urllib.error

from service_harness import ServiceTest, free_port

# The two messages of grpc.health.v1 by hand: one string field, one enum field (1: SERVING).
PROBE = """
import sys, grpc
channel = grpc.insecure_channel(sys.argv[1])
check = channel.unary_unary("/grpc.health.v1.Health/Check")
for service in ("", "megatrain.v1.ready", "no.such.service"):
    name = service.encode()
    try:
        print(check(b"\\x0a" + bytes([len(name)]) + name if name else b"", timeout=10).hex())
    except grpc.RpcError as error:
        print(error.code().name)
try:
    channel.unary_unary("/megatrain.v1.Nodes/List")(b"", timeout=10)
    print("the API is here too")
except grpc.RpcError as error:
    print(error.code().name)
"""


class ProbeTest(ServiceTest):
    autostart = False

    def setUp(self):
        super().setUp()
        self.health_port = free_port()
        self.start_coordinator("--health-listen", f"127.0.0.1:{self.health_port}")
        self.wait_api()

    def status(self, port, path):
        try:
            self.http(port, path)
            return 200
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def test_health_alone_on_its_port(self):
        self.wait_for("readiness, which is looked at once a second", lambda: self.probe()[1] == "0801", limit=20)
        self.assertEqual(self.probe(), ["0801", "0801", "NOT_FOUND", "UNIMPLEMENTED"])

    def probe(self):
        done = subprocess.run(["/usr/bin/python3", "-c", PROBE, f"127.0.0.1:{self.health_port}"], capture_output=True,
                              text=True, timeout=60, env=self.env, check=False)
        lines = done.stdout.splitlines()
        self.assertEqual(len(lines), 4, done.stderr)
        return lines

    def test_http_of_both_daemons(self):
        # A coordinator that starts answers calls of its API before it serves HTTP.
        self.wait_for("a ready coordinator", lambda: self.status(self.http_port, "/readyz") == 200)
        for path, code in (("/livez", 200), ("/metrics", 200), ("/", 404)):
            self.assertEqual(self.status(self.http_port, path), code, f"coordinator {path}")
        self.start_worker("node-a", 2)
        self.wait_nodes(1)
        port = self.worker_args["node-a"][2]
        self.wait_for("a ready worker", lambda: self.status(port, "/readyz") == 200, limit=20)
        for path, code in (("/livez", 200), ("/metrics", 200), ("/", 404)):
            self.assertEqual(self.status(port, path), code, f"worker {path}")

    def test_a_worker_lives_on_without_its_coordinator(self):
        """Else a probe would end ranks that train."""
        self.start_worker("node-a", 2)
        self.wait_nodes(1)
        port = self.worker_args["node-a"][2]
        self.kill_coordinator()
        for _ in range(20):
            self.assertEqual(self.status(port, "/livez"), 200)
            time.sleep(0.1)


if __name__ == "__main__":
    unittest.main()
