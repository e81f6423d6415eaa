#!/usr/bin/env bash
# Prints what the last digits of a run depend on: the processor, and which of its kernels OpenBLAS takes. Usage: machine.sh
set -euo pipefail
echo "processor: $(nproc) x $(sed -n 's/^model name[[:space:]]*: //p' /proc/cpuinfo | head -n 1)," \
  "family $(sed -n 's/^cpu family[[:space:]]*: //p' /proc/cpuinfo | head -n 1)" \
  "model $(sed -n 's/^model[[:space:]]*: //p' /proc/cpuinfo | head -n 1)"
python3 - <<'PYTHON'
import ctypes
try:
    blas = ctypes.CDLL("libopenblas.so.0")
    blas.openblas_get_corename.restype = blas.openblas_get_config.restype = ctypes.c_char_p
    print(f"OpenBLAS: {blas.openblas_get_corename().decode()} kernels; {blas.openblas_get_config().decode()}")
except OSError as error:
    print(f"OpenBLAS: not there ({error})")
PYTHON
env | grep '^OPENBLAS_' || echo "no OPENBLAS_* is set"
