#!/usr/bin/python3
"""Writes the JSON Schemas of what `mtctl -o json` prints of the protobuf messages, from their descriptors.

Usage: schemas.py [--check] [FOLDER]. FOLDER is docs/schemas unless given. --check writes nothing, and exits 1 where a file is not as it
would be written. Schemas in the folder that this script does not make are written by hand (docs/schemas/README.md).
client/output/json.h says what the printed form is: integers as numbers, enum values by name, fields without presence always there.
"""
import importlib
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROTO = ROOT / "proto"
DRAFT = "https://json-schema.org/draft/2020-12/schema"

# File -> message.
KINDS = {"job": "Job", "jobs": "ListJobsResponse", "node": "Node", "nodes": "ListNodesResponse", "orphans": "ListOrphansResponse",
         "job_checkpoints": "ListCheckpointsResponse", "operation": "Operation", "operations": "ListOperationsResponse",
         "event": "Event", "events": "EventsChunk", "server": "ServerInfo", "killed": "KillOrphanResponse", "bench": "BenchReport",
         "job_file": "JobSpec", "samples": "History"}
# File -> its fields, each a message or a list of one; "+" adds fields to a message.
COMPOSED = {"description": ("Job", {"operations": ["Operation"], "events": ["Event"]}),
            "version": (None, {"client": {"version": "string"}, "server?": "ServerInfo"}),
            "top": (None, {"jobs": ["Job"], "readings": ["RankReadings"]})}

INTEGERS = {"int32", "int64", "uint32", "uint64", "fixed32", "fixed64", "sfixed32", "sfixed64", "sint32", "sint64"}


def load(folder):
    """Compiles the protos into `folder`; returns the pool's messages by name, and the module of options."""
    files = sorted(str(f.relative_to(PROTO)) for f in PROTO.rglob("*.proto"))
    subprocess.run(["protoc", "-I", str(PROTO), f"--python_out={folder}", *files], check=True)
    sys.path.insert(0, folder)
    modules = {f: importlib.import_module(f[:-len(".proto")].replace("/", ".") + "_pb2") for f in files}
    messages = {}
    for module in modules.values():
        messages.update(module.DESCRIPTOR.message_types_by_name)
    return messages, modules["megatrain/v1/options.proto"]


class Writer:
    def __init__(self, messages, options):
        self.messages = messages
        self.options = options
        self.defs = {}

    def name_of(self, message):
        return message.full_name.removeprefix("megatrain.v1.")

    def ref(self, message):
        name = self.name_of(message)
        if name not in self.defs:
            self.defs[name] = {}  # a message may hold itself
            self.defs[name] = self.job_section(message) if name == "JobSpec" else self.message(message)
        return {"$ref": f"#/$defs/{name}"}

    def message(self, message):
        properties, required = {}, []
        for field in message.fields:
            properties[field.name] = self.field(field)
            # Protobuf's Python tells presence of single fields alone.
            if field.label == field.LABEL_REPEATED or not field.has_presence:
                required.append(field.name)
        return self.object(properties, required)

    @staticmethod
    def object(properties, required):
        out = {"type": "object", "properties": properties, "additionalProperties": False}
        if required:
            out["required"] = required
        return out

    def field(self, field):
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            return {"type": "object", "additionalProperties": self.value(entry.fields_by_name["value"])}
        if field.label == field.LABEL_REPEATED:
            return {"type": "array", "items": self.value(field)}
        return self.value(field)

    def value(self, field):
        if field.message_type is not None:
            return self.ref(field.message_type)
        if field.enum_type is not None:
            return {"type": "string", "enum": [v.name for v in field.enum_type.values]}
        kind = self.type_name(field)
        if kind in INTEGERS:
            return {"type": "integer"}
        if kind in ("double", "float"):
            return {"type": ["number", "null"]}  # null: not a number, or infinite
        return {"type": "boolean" if kind == "bool" else "string"}

    @staticmethod
    def type_name(field):
        names = {getattr(field, n): n[len("TYPE_"):].lower() for n in dir(field) if n.startswith("TYPE_")}
        return names[field.type]

    # --- The form of a job file (common/spec/print.h): fields that are set, words of enums, lengths of time and sizes as text.

    def job_section(self, message):
        return self.object({field.name: self.job_field(field) for field in message.fields}, [])

    def job_field(self, field):
        entry = field.message_type
        if entry is not None and entry.GetOptions().map_entry:
            return {"type": "object", "additionalProperties": {"type": "string"}}
        if field.label == field.LABEL_REPEATED:
            # Sources of data are prefixes, between which weights may stand, or the file that lists them.
            if entry is None:
                return {"type": "array", "items": self.job_value(field)}
            return {"type": ["array", "object"], "items": {"type": ["string", "number"]}, "required": ["file"],
                    "properties": {"file": {"type": "string"}}, "additionalProperties": False}
        return self.job_section(entry) if entry is not None else self.job_value(field)

    def job_value(self, field):
        rule = field.GetOptions().Extensions[self.options.rule]
        if field.enum_type is not None:
            prefix = self.enum_prefix(field.enum_type)
            return {"type": "string", "enum": [v.name[len(prefix):].lower() for v in field.enum_type.values if v.number]}
        kind = self.type_name(field)
        if kind in INTEGERS:
            return {"type": "string" if rule.unit in (self.options.UNIT_DURATION, self.options.UNIT_BYTES) else "integer"}
        return {"type": {"double": "number", "bool": "boolean"}.get(kind, "string")}

    @staticmethod
    def enum_prefix(enum):
        """What the names of all values begin with (common/spec/rules.cc): "WEIGHT_DECAY_"."""
        return re.sub(r"(?<!^)(?=[A-Z])", "_", enum.name).upper() + "_"

    def composed(self, what):
        if isinstance(what, list):
            return {"type": "array", "items": self.composed(what[0])}
        if isinstance(what, dict):
            properties = {name.rstrip("?"): self.composed(of) for name, of in what.items()}
            return self.object(properties, [name for name in what if not name.endswith("?")])
        return {"type": what} if what[0].islower() else self.ref(self.messages[what])


def schema(title, body, defs):
    out = {"$schema": DRAFT, "title": title, "$comment": "Written by scripts/schemas.py from proto/megatrain/v1.", **body}
    if defs:
        out["$defs"] = dict(sorted(defs.items()))
    return json.dumps(out, indent=1) + "\n"


def schemas():
    with tempfile.TemporaryDirectory() as folder:
        messages, options = load(folder)
        out = {}
        for kind, name in KINDS.items():
            writer = Writer(messages, options)
            out[kind] = schema(f"mtctl -o json: {kind}", writer.ref(messages[name]), writer.defs)
        for kind, (base, fields) in COMPOSED.items():
            writer = Writer(messages, options)
            body = writer.composed(fields)
            if base is not None:
                whole = writer.message(messages[base])
                whole["properties"].update(body["properties"])
                whole["required"] = sorted(whole["required"] + body["required"])
                body = whole
            out[kind] = schema(f"mtctl -o json: {kind}", body, writer.defs)
        return out


def main(args):
    check = "--check" in args
    given = [a for a in args if a != "--check"]
    folder = pathlib.Path(given[0]) if given else ROOT / "docs/schemas"
    wrong = []
    for kind, text in schemas().items():
        path = folder / f"{kind}.json"
        if check:
            if not path.exists() or path.read_text() != text:
                wrong.append(path.name)
        else:
            path.write_text(text)
    for name in wrong:
        print(f"{folder / name} is not what the protos say: scripts/schemas.py writes it")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
