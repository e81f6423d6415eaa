"""A validator of the JSON Schema words that docs/schemas uses; any other word in a schema is an error, so that none is ignored."""
import json
import pathlib

SCHEMAS = pathlib.Path(__file__).resolve().parents[2] / "docs/schemas"
DRAFT = "https://json-schema.org/draft/2020-12/schema"
KNOWN = {"$schema", "$comment", "$defs", "$ref", "title", "description", "type", "properties", "required", "items", "enum",
         "additionalProperties"}


def is_type(value, name):
    if name == "integer":
        return isinstance(value, int) and not isinstance(value, bool)
    if name == "number":
        return isinstance(value, (int, float)) and not isinstance(value, bool)
    return isinstance(value, {"object": dict, "array": list, "string": str, "boolean": bool, "null": type(None)}[name])


def load(kind):
    schema = json.loads((SCHEMAS / f"{kind}.json").read_text())
    assert schema["$schema"] == DRAFT, kind
    return schema


def faults(value, schema, root=None, at="$"):
    """What is wrong with the value, each with where it is."""
    root = root if root is not None else schema
    unknown = set(schema) - KNOWN
    if unknown:
        return [f"{at}: the schema has {sorted(unknown)}, which this validator does not know"]
    found = []
    if "$ref" in schema:
        name = schema["$ref"].removeprefix("#/$defs/")
        found += faults(value, root["$defs"][name], root, at)
    if "type" in schema:
        types = schema["type"] if isinstance(schema["type"], list) else [schema["type"]]
        if not any(is_type(value, t) for t in types):
            return found + [f"{at}: {value!r:.60} is not {' or '.join(types)}"]
    if "enum" in schema and value not in schema["enum"]:
        found.append(f"{at}: {value!r:.60} is none of {schema['enum']}")
    if isinstance(value, dict):
        found += object_faults(value, schema, root, at)
    if isinstance(value, list) and "items" in schema:
        for i, item in enumerate(value):
            found += faults(item, schema["items"], root, f"{at}[{i}]")
    return found


def object_faults(value, schema, root, at):
    found = [f"{at}: {name} is missing" for name in schema.get("required", []) if name not in value]
    properties, more = schema.get("properties", {}), schema.get("additionalProperties", True)
    for name, item in value.items():
        if name in properties:
            found += faults(item, properties[name], root, f"{at}.{name}")
        elif more is False:
            found.append(f"{at}: {name} is not in the schema")
        elif more is not True:
            found += faults(item, more, root, f"{at}.{name}")
    return found
