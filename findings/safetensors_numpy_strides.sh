#!/usr/bin/env bash
# safetensors 0.8.0, numpy writer: an array that is not C-contiguous is written as the bytes from its start on, whatever its strides.
# The file is valid, nothing is raised, and the values are wrong; 0.7.0 writes them right.
# Seen 2026-11-27 with numpy 2.3.5: the transposed [[0, 3], [1, 4], [2, 5]] comes back as [[0, 1], [2, 3], [4, 5]].
# What follows: golden files that are made with numpy go through numpy.ascontiguousarray first, and are read back.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cat > "$folder/show.py" <<'PYTHON'
import sys
import numpy
import safetensors
import safetensors.numpy

x = numpy.arange(6, dtype=numpy.float32).reshape(2, 3)
arrays = {"contiguous": x, "transposed": x.T, "two of three columns": x[:, :2], "Fortran order": numpy.asfortranarray(x),
          "made contiguous": numpy.ascontiguousarray(x.T)}
wrong = []
for name, array in arrays.items():
    loaded = safetensors.numpy.load(safetensors.numpy.save({"t": array}))["t"]
    equal = numpy.array_equal(loaded, array)
    print(f"safetensors {safetensors.__version__}, {name}: saved {array.tolist()}, loaded {loaded.tolist()}{'' if equal else ': WRONG'}")
    wrong += [] if equal else [name]
sys.exit(0 if wrong == sys.argv[1:] else f"expected wrong: {sys.argv[1:]}, found: {wrong}")
PYTHON
run() { # version of safetensors, the arrays that come back wrong
  python3 -m pip install -q --disable-pip-version-check --target "$folder/$1" "safetensors==$1" numpy==2.3.5
  PYTHONPATH="$folder/$1" python3 "$folder/show.py" "${@:2}"
}
run 0.7.0
run 0.8.0 "transposed" "two of three columns" "Fortran order"
