#!/usr/bin/env bash
# Format, file sizes and clang-tidy over own host code. Usage: lint.sh [--fix] [file.cc ...]
#   --fix   format in place instead of reporting
#   files   run clang-tidy on these only (as listed in build/lint/compile_commands.json)
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
# The lint preset joins the sources of a folder, eight at a time: clang-tidy's time goes into the headers, which are then read
# once. A name that two files of a folder both keep to themselves shows up here as a redefinition: rename one.
if [ $# -gt 0 ]; then
  units=("$@")
else
  mapfile -t units < <(python3 - <<'PYTHON'
import json
for entry in json.load(open("build/lint/compile_commands.json")):
    path = entry["file"]
    if not any(part in path for part in ("/proto/", "/tests/", "/gen/")):
        print(path)
PYTHON
  )
fi
[ ${#units[@]} -gt 0 ] || { echo "lint: no sources in build/lint/compile_commands.json" >&2; exit 1; }
echo "lint: clang-tidy on ${#units[@]} units"
printf '%s\n' "${units[@]}" | xargs -P "$(nproc)" -n 1 clang-tidy-16 -p build/lint --quiet 2> build/lint.tidy.log ||
  { grep -v 'warnings generated' build/lint.tidy.log >&2; exit 1; }
