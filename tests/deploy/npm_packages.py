"""Lays out the npm packages of npm/package-lock.json without npm, which on Debian brings hundreds of packages of its own.

Each archive comes from the registry once, is checked against the lock's sha512, and is unpacked below the build folder.
"""
import base64
import hashlib
import io
import json
import os
import pathlib
import shutil
import tarfile
import urllib.error
import urllib.request

REGISTRY = "https://registry.npmjs.org"
LOCK = pathlib.Path(__file__).resolve().parent / "npm/package-lock.json"


class Unreachable(Exception):
    """The registry cannot be reached, which is no fault of what is tested."""


def fetch(name, version, integrity):
    """The archive's bytes, checked."""
    url = f"{REGISTRY}/{name}/-/{name.rsplit('/', 1)[-1]}-{version}.tgz"
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            data = answer.read()
    except (urllib.error.URLError, TimeoutError) as error:
        if getattr(error, "code", 0) == 404:
            raise  # the registry answers, the lock is wrong
        raise Unreachable(f"{url}: {error}") from error
    kind, wanted = integrity.split("-", 1)
    found = base64.b64encode(hashlib.new(kind, data).digest()).decode()
    if found != wanted:
        raise ValueError(f"{url}: {kind} is {found}, the lock says {wanted}")
    return data


def unpack(data, folder):
    """An npm archive has one top folder, which is dropped."""
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for member in archive.getmembers():
            parts = pathlib.PurePosixPath(member.name).parts[1:]
            if not member.isfile() or not parts or ".." in parts:
                continue
            target = folder.joinpath(*parts)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(archive.extractfile(member).read())


def closure(packages, roots):
    """Keys of `packages` that `roots` need, found as Node looks for them: in the nearest node_modules upwards."""
    found, todo = [], [("", name) for name in roots]
    while todo:
        owner, name = todo.pop()
        base = owner
        while True:
            key = f"{base}/node_modules/{name}".lstrip("/")
            if key in packages:
                break
            if not base:
                raise KeyError(f"{name}, needed by {owner or 'package.json'}, is not in the lock")
            base = base.rpartition("/node_modules/")[0] if "/node_modules/" in base else ""
        if key not in found:
            found.append(key)
            todo += [(key, dependency) for dependency in packages[key].get("dependencies", {})]
    return found


# Of client-node only the attribute maps are read, which need nothing else.
MANIFESTS = {"roots": ["kubernetes-models"], "alone": ["@kubernetes/client-node"]}
TOKENIZERS = {"roots": ["tiktoken", "gpt-3-encoder", "@huggingface/tokenizers"], "alone": []}


def node_modules(below, wanted=MANIFESTS):
    """Path of a node_modules with what check_manifests.js needs, or another of the sets above; made on the first call."""
    lock = LOCK.read_bytes()
    name = hashlib.sha256(lock + json.dumps(wanted).encode()).hexdigest()[:12]
    folder = pathlib.Path(below) / f"npm-{name}"
    if folder.exists():
        return folder / "node_modules"
    packages = json.loads(lock)["packages"]
    keys = closure(packages, wanted["roots"]) + [f"node_modules/{name}" for name in wanted["alone"]]
    building = folder.with_suffix(f".{os.getpid()}")
    try:
        for key in keys:
            name = key.rpartition("node_modules/")[2]
            unpack(fetch(name, packages[key]["version"], packages[key]["integrity"]), building / key)
        building.rename(folder)
    finally:
        shutil.rmtree(building, ignore_errors=True)
    return folder / "node_modules"
