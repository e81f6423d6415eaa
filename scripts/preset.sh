#!/usr/bin/env bash
# Prints the preset that scripts build and use, which is also the folder below build/: cuda-release where nvcc is found, else
# cpu-release. MT_PRESET says otherwise.
set -euo pipefail
if [ -n "${MT_PRESET:-}" ]; then
  echo "$MT_PRESET"
elif command -v nvcc > /dev/null || [ -x /usr/local/cuda/bin/nvcc ]; then
  echo cuda-release
else
  echo cpu-release
fi
