#!/usr/bin/env bash
# Format, file sizes and clang-tidy over own host code. Usage: lint.sh [--fix] [file.cc ...]
#   --fix   format in place instead of reporting
#   files   run clang-tidy on these only
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

fix=false
if [ "${1:-}" = "--fix" ]; then fix=true; shift; fi

mapfile -t sources < <(git ls-files -- '*.cc' '*.h' '*.cu' '*.cuh')
if $fix; then
  clang-format-16 -i "${sources[@]}"
else
  clang-format-16 --dry-run -Werror "${sources[@]}"
fi

# 500 lines is the hard stop for a hand-written file.
too_long=$(wc -l "${sources[@]}" | awk '$2 != "total" && $1 > 500 {print "  " $2 ": " $1 " lines"}')
if [ -n "$too_long" ]; then
  printf 'lint: files over 500 lines, split them by concept:\n%s\n' "$too_long" >&2
  exit 1
fi

mkdir -p build
cmake --preset lint > build/lint.configure.log 2>&1 || { cat build/lint.configure.log >&2; exit 1; }
cmake --build --preset lint --target mt_generated -j "$(nproc)" >> build/lint.configure.log 2>&1 ||
  { cat build/lint.configure.log >&2; exit 1; }
files=("$@")
if [ ${#files[@]} -eq 0 ]; then
  mapfile -t files < <(git ls-files -- 'common/*.cc' 'kernels/*.cc' 'worker/*.cc' 'daemon/*.cc' 'client/*.cc')
fi
echo "lint: clang-tidy on ${#files[@]} files"
printf '%s\n' "${files[@]}" | xargs -P "$(nproc)" -n 4 clang-tidy-16 -p build/lint --quiet 2> build/lint.tidy.log ||
  { grep -v 'warnings generated' build/lint.tidy.log >&2; exit 1; }
