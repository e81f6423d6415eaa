"""Reads a JSON array of Kubernetes objects from stdin; prints a JSON array of faults, empty where all are valid. kubernetes-validate's
strict schemas know every field: an unknown one is a fault, and so is a kind that they do not have, custom ones among them."""
import json
import sys

import kubernetes_validate

VERSION = kubernetes_validate.latest_version()


def fault_of(document):
    name = f"{document['kind']}/{document['metadata']['name']}"
    try:
        kubernetes_validate.validate(document, VERSION, strict=True)
    except kubernetes_validate.SchemaNotFoundError:
        return [f"{name}: no schema of {document['apiVersion']} {document['kind']}"]
    except kubernetes_validate.ValidationError as error:
        return [f"{name}: {'.'.join(map(str, error.path))}: {error.message}"]
    return []


json.dump([fault for document in json.load(sys.stdin) for fault in fault_of(document)], sys.stdout)
