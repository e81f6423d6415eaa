"""`-o json` of every verb that `mtctl help` lists: a tree as docs/schemas says, or a refusal that names the verb."""
import concurrent.futures
import importlib
import json
import pathlib
import re
import subprocess
import sys
import unittest

import grpc

import json_schema
from service_harness import ServiceTest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LONG = ("--set", "training.train_iters=1000000", "--set", "checkpoint.every_iters=0", "--set", "training.eval.every_iters=5",
        "--set", "training.eval.iters=1", "--set", "training.eval.prompts=[the]", "--set", "training.eval.prompt_tokens=2")
REFUSED = "refused"
USAGE = 128

# Verb -> (arguments, schema or REFUSED), in the order in which they run. {C} the oldest checkpoint, {D} their
# directory. Those of OPERATOR run against a coordinator of the test's own.
CASES = [
    ("init", "-f init.yaml", REFUSED),
    ("validate", "-f job.yaml", "job_file"),
    ("explain", "job.model", REFUSED),
    ("explain schedule", "-f job.yaml", REFUSED),
    ("explain memory", "-f job.yaml", "memory"),
    ("data prepare", "--input text --separator % --output made", "prepared"),
    ("data inspect", "made --samples 1", "dataset"),
    ("data verify", "made", "data_verified"),
    ("data merge", "made made --output both", "datasets"),
    ("data split", "both --shares 1,1 --output part", "datasets"),
    ("data import", "--input made.bin --output imported", "datasets"),
    ("tokenizer train", "--input text --output bpe.json --vocab-size 300", "tokenizer_trained"),
    ("tokenizer inspect", "--tokenizer-file bpe.json", "tokenizer"),
    ("tokenizer encode", "--tokenizer-file bpe.json text", "token_ids"),
    ("tokenizer decode", "made", REFUSED),
    ("submit", "-f job.yaml --dry-run", "job_file"),
    ("bench", "-f job.yaml --steps 2 --warmup 1", "bench"),
    ("submit", "-f job.yaml {LONG}", "job"),
    ("submit", "-f job.yaml --follow", REFUSED),
    ("wait", "tiny --for state=RUNNING", "job"),
    ("get jobs", "", "jobs"),
    ("get nodes", "", "nodes"),
    ("get orphans", "", "orphans"),
    ("get presets", "", "presets"),
    ("get jobs", "--watch", REFUSED),
    ("describe", "tiny", "description"),
    ("describe job", "tiny", "description"),
    ("describe node", "node-a", "node"),
    ("top", "", "top"),
    ("top", "tiny", "top"),
    ("follow", "tiny", REFUSED),
    ("logs", "tiny", REFUSED),
    ("metrics", "tiny", REFUSED),
    ("plot", "tiny", REFUSED),
    ("profile", "tiny", REFUSED),
    ("pause", "tiny --hold --wait", "operation"),
    ("resume", "tiny --wait", "operation"),
    ("checkpoint save", "tiny --wait --tag best --meta a=b", "operation"),
    ("checkpoint", "tiny --wait", "operation"),
    ("checkpoint save", "tiny --wait", "operation"),
    ("get checkpoints", "tiny", "job_checkpoints"),
    ("get operations", "tiny", "operations"),
    ("get events", "tiny", "events"),
    ("events", "tiny", "events"),
    ("events", "tiny --follow", REFUSED),
    ("update", "tiny --set training.log_every=2", "job"),
    ("cancel", "tiny --yes", "operation"),
    ("wait", "tiny", "job"),
    ("samples", "tiny", "samples"),
    ("checkpoint list", "{D}", "checkpoints"),
    ("checkpoint inspect", "{C} --tensors", "inspection"),
    ("checkpoint verify", "{C}", "verification"),
    ("generate", "{D} --prompt the --tokens 3 --logprobs", "generated"),
    ("eval", "--dir {D} -f tasks.yaml", "scored"),
    ("checkpoint diff", "{C} {C}", "difference"),
    ("checkpoint pin", "{C} --reason why", "kept"),
    ("checkpoint unpin", "{C}", "kept"),
    ("checkpoint untag", "{C}", "kept"),
    ("checkpoint copy", "{C} copies", "copied"),
    ("checkpoint export", "{C} hf", "exported"),
    ("checkpoint import", "hf", "imported"),
    ("checkpoint export", "{C} model.bin --format llmc", "exported"),
    ("checkpoint import", "model.bin", "imported"),
    ("checkpoint delete", "{C} --ended --yes", "kept"),
    ("checkpoint delete", "{D} --run {R} --ended --yes", "run_removed"),
    ("submit", "-f job.yaml --set name=other {LONG}", "job"),
    ("kill", "other --yes", "operation"),
    ("delete", "other --yes", "operation"),
    ("node readmit", "node-a", "node"),
    ("admin backup", "state.tar", "backup"),
    ("context set", "lab --endpoint head:7070", "contexts"),
    ("context list", "", "contexts"),
    ("context use", "lab", "contexts"),
    ("context show", "", "context"),
    ("context delete", "lab", "contexts"),
    ("completion", "bash", REFUSED),
    ("version", "", "version"),
    ("help", "submit", REFUSED),
    ("dev up", "--cpu-slots 1 --gpus none", "dev_up"),
    ("dev status", "", "dev_status"),
    ("dev down", "--purge --yes", "dev_down"),
]
OPERATOR = [
    ("adopt", "tiny", "job"),
    ("node declare-dead", "n1 --yes", "node"),
    ("node delete", "n1 --yes", "node_deleted"),
    ("node kill-orphan", "n1 8c5c3b0e-0000-0000-0000-000000000000 --yes", "killed"),
    ("admin restore", "--yes", "server"),
]
# Exit codes other than 0 that go with output: the job was cancelled.
EXPECTED_CODES = {"wait tiny": 9}


class Operator(grpc.GenericRpcHandler):
    """Answers the calls of operators, whose occasions take a minute to make."""

    def __init__(self, api, types):
        job = types.Job(uid="u", name="tiny", state=types.RUNNING, ranks=[types.RankStatus(rank=0, state=types.TRAINING)])
        self.answers = {"Jobs/Adopt": job, "Nodes/DeclareDead": types.Node(name="n1"), "Nodes/Delete": api.DeleteNodeResponse(),
                        "Nodes/KillOrphan": api.KillOrphanResponse(ranks=2), "Admin/DeclareRestore": api.ServerInfo(version="1", term=2)}

    def service(self, details):
        answer = self.answers.get(details.method.removeprefix("/megatrain.v1."))
        if answer is None:
            return None
        return grpc.unary_unary_rpc_method_handler(lambda request, context: answer.SerializeToString())


class OutputTest(ServiceTest):
    def listed(self, path=()):
        """The verbs of `mtctl help`, those of subcommands too; a verb with subcommands only where it does something alone."""
        text = self.mtctl("help", *path).stdout
        rows = re.search(r"^Subcommands:\n((?:  .*\n)+)", text, re.MULTILINE)
        below = re.findall(r"^  ([a-z][a-z-]*)", rows.group(1), re.MULTILINE) if rows else []
        if not below:
            return [" ".join(path)]
        alone = [" ".join(path)] if re.search(r"^Positionals:", text, re.MULTILINE) else []
        return alone + [verb for name in below for verb in self.listed((*path, name))]

    def run_case(self, verb, arguments, kind, *more):
        done = self.mtctl(*verb.split(), *arguments.split(), "-o", "json", *more, check=False)
        what = f"mtctl {verb} {arguments}\n{done.stdout[:2000]}\n{done.stderr}"
        if kind == REFUSED:
            self.assertEqual(done.returncode, USAGE, what)
            self.assertEqual(done.stdout, "", what)
            self.assertEqual(len(done.stderr.splitlines()), 1, what)
            self.assertIn(verb.split()[0], done.stderr, what)
            return None
        self.assertEqual(done.returncode, EXPECTED_CODES.get(f"{verb} {arguments}", 0), what)
        tree = json.loads(done.stdout)
        self.assertEqual(json_schema.faults(tree, json_schema.load(kind)), [], what)
        return tree

    def filled(self, arguments):
        folder = self.folder()
        names = [n for n in self.checkpoints() if re.search(r"\d{8}", n)]
        values = {"{LONG}": " ".join(LONG), "{D}": str(folder)}
        if names:
            values["{C}"] = str(folder / names[0])
            values["{R}"] = json.loads((folder / "run.json").read_text())["runs"][-1]["id"]
        for name, value in values.items():
            arguments = arguments.replace(name, value)
        return arguments

    def test_every_verb_prints_a_tree_or_says_why_not(self):
        self.assertEqual(sorted({verb for verb, _, _ in CASES + OPERATOR}), sorted(self.listed()),
                         "every verb of mtctl help has a row here, and every row is a verb")
        (self.dir / "tasks.yaml").write_text("tasks: [{name: text, type: perplexity, file: short.txt}]\n")
        (self.dir / "short.txt").write_text("the cat sat on the mat")
        used = set()
        for verb, arguments, kind in CASES:
            with self.subTest(f"{verb} {arguments}"):
                if verb == "checkpoint copy":
                    (self.dir / "copies").mkdir()
                tree = self.run_case(verb, self.filled(arguments), kind)
                self.look_closer(verb, tree)
                used.add(kind)
        used |= self.run_operators()
        kinds = {p.stem for p in json_schema.SCHEMAS.glob("*.json")}
        # What jsonl prints of lists.
        events = self.mtctl("events", "tiny", "-o", "jsonl").stdout.splitlines()
        for line in events:
            self.assertEqual(json_schema.faults(json.loads(line), json_schema.load("event")), [])
        self.assertGreater(len(events), 3)
        self.assertEqual(kinds - used - {"event"}, set(), "schemas of nothing that is printed")

    def look_closer(self, verb, tree):
        """That a tree is not empty where there is something."""
        if verb == "get jobs" and tree:
            self.assertIn("tiny", [job["name"] for job in tree["jobs"]])
        if verb in ("checkpoint list", "get checkpoints"):
            self.assertEqual(len(tree["checkpoints"]), 3)
        if verb == "samples":
            self.assertEqual([[sample["prompt"] for sample in one["samples"]] for one in tree["evals"]], [["the"]])
        if verb == "explain memory":
            self.assertEqual(tree["ranks"], 2)
            self.assertGreater(tree["all"]["total"], 0)

    def run_operators(self):
        stubs = self.dir / "stubs"
        stubs.mkdir()
        protos = sorted(str(p) for p in (ROOT / "proto/megatrain/v1").glob("*.proto"))
        subprocess.run(["protoc", "-I", str(ROOT / "proto"), f"--python_out={stubs}", *protos], check=True, timeout=60)
        sys.path.insert(0, str(stubs))
        api = importlib.import_module("megatrain.v1.api_pb2")
        types = importlib.import_module("megatrain.v1.types_pb2")
        server = grpc.server(concurrent.futures.ThreadPoolExecutor(2))
        server.add_generic_rpc_handlers((Operator(api, types),))
        port = server.add_insecure_port("127.0.0.1:0")
        server.start()
        try:
            for verb, arguments, kind in OPERATOR:
                with self.subTest(f"{verb} {arguments}"):
                    self.run_case(verb, arguments, kind, "--coordinator", f"127.0.0.1:{port}")
        finally:
            server.stop(None)
        return {kind for _, _, kind in OPERATOR}


class ValidatorTest(unittest.TestCase):
    """The validator sees what it is there for."""

    def faults_of(self, value, schema):
        return json_schema.faults(value, schema)

    def test_each_word_refuses(self):
        schema = {"$defs": {"N": {"type": ["number", "null"]}}, "type": "object", "required": ["a"], "additionalProperties": False,
                  "properties": {"a": {"type": "integer"}, "b": {"enum": ["x"]}, "c": {"type": "array", "items": {"$ref": "#/$defs/N"}},
                                 "d": {"type": "object", "additionalProperties": {"type": "string"}}}}
        self.assertEqual(self.faults_of({"a": 1, "b": "x", "c": [1.5, None], "d": {"k": "v"}}, schema), [])
        for wrong in ({}, {"a": "1"}, {"a": True}, {"a": 1.0}, {"a": 1, "z": 1}, {"a": 1, "b": "y"}, {"a": 1, "c": ["t"]},
                      {"a": 1, "d": {"k": 1}}, []):
            self.assertNotEqual(self.faults_of(wrong, schema), [], wrong)
        self.assertNotEqual(self.faults_of(1, {"type": "integer", "minimum": 0}), [], "a word that it does not know")


if __name__ == "__main__":
    unittest.main()
