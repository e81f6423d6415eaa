"""Reads a checkpoint by worker/checkpoint/FORMAT.md: manifests, safetensors files, digests."""
import collections
import json
import pathlib
import struct

import numpy as np

from random_streams import digest128

_TYPES = {"F64": "<f8", "F32": "<f4"}


class Checkpoint:
    """Its manifest, and by kind (weights, and the moments by their names) name -> float64 array."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.manifest = json.loads((self.folder / "manifest.json").read_text())
        assert self.manifest["format"] == "megatrain-checkpoint", folder
        assert self.manifest["version"] == 2, folder
        self._files = {}
        self._slices = self._read_ranks()
        self.tensors = collections.defaultdict(dict)
        self.dtypes = set()
        for key, entry in self.manifest["tensors"].items():
            kind, name = key.split("/", 1)
            self.dtypes.add(entry["dtype"])
            self.tensors[kind][name] = self._assemble(key, entry)

    def _read_ranks(self):
        """key -> [(file, slice)] of the manifests of all ranks, each held against the digest and the ranges that name it."""
        found = collections.defaultdict(list)
        keys = sorted(self.manifest["tensors"], key=str.encode)
        for rank in self.manifest["ranks"]:
            data = (self.folder / rank["manifest"]).read_bytes()
            assert len(data) == rank["bytes"] and digest128(data) == rank["xxh3_128"], rank["manifest"]
            content = json.loads(data)
            assert content["format"] == "megatrain-checkpoint-rank" and content["version"] == 2, rank["manifest"]
            ordinals = [n for first, last in rank["tensors"] for n in range(first, last + 1)]
            assert [keys[n] for n in ordinals] == sorted(content["tensors"], key=str.encode), rank["manifest"]
            for key, tensor in content["tensors"].items():
                assert {name: tensor[name] for name in ("dtype", "shape")} == self.manifest["tensors"][key], key
                found[key] += [(rank["file"], piece) for piece in tensor["slices"]]
            assert rank["slices"] == sum(len(tensor["slices"]) for tensor in content["tensors"].values()), rank["manifest"]
        return found

    def _blocks(self, data):
        """A slice's bytes as blocks; at least one."""
        size = self.manifest["block_bytes"]
        return [data[at:at + size] for at in range(0, max(len(data), 1), size)]

    def _assemble(self, key, entry):
        """A tensor from its slices, which cover each element once."""
        out = np.zeros(entry["shape"], _TYPES[entry["dtype"]])
        covered = np.zeros(entry["shape"], np.int64)
        for file, piece in self._slices[key]:
            data = self._stored(file, piece["tensor"], entry["dtype"], piece["shape"])
            assert [digest128(block) for block in self._blocks(data)] == piece["xxh3_128"], f"{key}: digests of {piece['tensor']}"
            box = tuple(slice(at, at + size) for at, size in zip(piece["offset"], piece["shape"]))
            out[box] = np.frombuffer(data, _TYPES[entry["dtype"]]).reshape(piece["shape"])
            covered[box] += 1
        assert (covered == 1).all(), f"{key}: slices overlap or leave a gap"
        return out.astype(np.float64)

    def _stored(self, file, tensor, dtype, shape):
        """Bytes of a tensor of a safetensors file."""
        if file not in self._files:
            data = (self.folder / file).read_bytes()
            length = struct.unpack("<Q", data[:8])[0]
            self._files[file] = json.loads(data[8:8 + length]), data[8 + length:]
        header, body = self._files[file]
        assert header[tensor]["dtype"] == dtype and header[tensor]["shape"] == shape, (file, tensor)
        begin, end = header[tensor]["data_offsets"]
        return body[begin:end]

    def boxes(self, key):
        """(offset, shape) of each slice of a tensor."""
        return [(tuple(piece["offset"]), tuple(piece["shape"])) for _, piece in self._slices[key]]

    @property
    def integers(self):
        return self.manifest["integers"]

    @property
    def reals(self):
        return {name: float(value) for name, value in self.manifest["reals"].items()}

    @property
    def facts(self):
        return self.manifest["facts"]


def find(root, step):
    """The checkpoint of a step of a run that started once."""
    folders = list(pathlib.Path(root).glob(f"step-{step:08}-e*"))
    assert len(folders) == 1, f"step {step}: {folders}"
    return Checkpoint(folders[0])
