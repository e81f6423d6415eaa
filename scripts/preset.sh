#!/usr/bin/env bash
# Prints the preset that scripts build and use, which is also the folder below build/: cuda-release where nvcc is found, else
# cpu-release. MT_PRESET says otherwise. Usage: preset.sh [--run]
#   --run   to run here: cuda-release only where there is a GPU, too, or where nothing else is built
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

has_gpu() { nvidia-smi -L 2> /dev/null | grep -q '^GPU '; }
is_built() { [ -x "build/$1/bin/mt-rank" ]; }

if [ -n "${MT_PRESET:-}" ]; then
  echo "$MT_PRESET"
elif ! command -v nvcc > /dev/null && [ ! -x /usr/local/cuda/bin/nvcc ]; then
  echo cpu-release
elif [ "${1:-}" != --run ] || has_gpu || { is_built cuda-release && ! is_built cpu-release; }; then
  echo cuda-release
else
  echo cpu-release
fi
