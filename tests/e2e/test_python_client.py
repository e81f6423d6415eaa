"""docs/examples/client.py on a real run: stubs by protoc and grpc_python_plugin, Debian's Python and gRPC, nothing else."""
import pathlib
import subprocess
import unittest

from service_harness import ServiceTest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PYTHON = "/usr/bin/python3"

# What the stubs say of a refusal and of a repeat; prints three lines.
PROBE = """
import sys, uuid, grpc
from megatrain.v1 import api_pb2 as api, api_pb2_grpc as rpc
jobs = rpc.JobsStub(grpc.insecure_channel(sys.argv[1]))
job, one = api.JobRef(name="from-python"), str(uuid.uuid4())
try:
    jobs.Pause(api.PauseRequest(job=job, request_id=one), timeout=60)
except grpc.RpcError as error:
    print(error.code().name, dict(error.trailing_metadata()).get("mt-reason"), error.details())
first, again = (jobs.Delete(api.DeleteJobRequest(job=job, request_id=one + "d"), timeout=60).name for _ in range(2))
print("same" if first == again else "two operations", first)
"""


class PythonClientTest(ServiceTest):
    def setUp(self):
        super().setUp()
        self.stubs = self.dir / "stubs"
        self.stubs.mkdir()
        protos = sorted(str(p) for p in (ROOT / "proto/megatrain/v1").glob("*.proto"))
        subprocess.run(["protoc", "-I", str(ROOT / "proto"), f"--python_out={self.stubs}", f"--grpc_out={self.stubs}",
                        "--plugin=protoc-gen-grpc=/usr/bin/grpc_python_plugin", *protos], check=True, timeout=60)

    def python(self, *args):
        return subprocess.run([PYTHON, *args], env=dict(self.env, PYTHONPATH=str(self.stubs)), capture_output=True, text=True,
                              timeout=180, check=False)

    def test_submits_watches_saves_holds_resumes_cancels(self):
        endpoint = f"127.0.0.1:{self.port}"
        done = self.python(str(ROOT / "docs/examples/client.py"), endpoint, str(ROOT / "docs/examples/job.json"))
        self.assertEqual(done.returncode, 0, done.stderr)
        rows = [line.split(" ", 2) for line in done.stdout.splitlines()]
        self.assertEqual([row[0] for row in rows], ["checkpoint", "pause", "resume", "cancel"], done.stdout)
        self.assertEqual([o["verb"] for o in self.operations("from-python") if o.get("error")], [])
        self.wait_state("CANCELLED", "from-python")
        saved = int(rows[0][1])
        self.assertGreater(saved, 0)
        self.assertTrue([c for c in self.checkpoints("from-python") if f"{saved:08d}" in c], "the save is not on disk")
        self.assertLessEqual(saved, int(rows[1][1]))
        self.assertEqual(self.rank_processes(), [])
        self.refusal_and_repeat(endpoint)

    def refusal_and_repeat(self, endpoint):
        done = self.python("-c", PROBE, endpoint)
        self.assertEqual(done.returncode, 0, done.stderr)
        refused, repeated = done.stdout.splitlines()
        code, reason, message = refused.split(" ", 2)
        self.assertEqual(code, "FAILED_PRECONDITION")
        self.assertRegex(reason, r"^[A-Z_]+$")
        self.assertIn("CANCELLED", message)
        self.assertRegex(message, r"delete")  # the one verb that is left
        self.assertRegex(repeated, r"^same operations/")


if __name__ == "__main__":
    unittest.main()
