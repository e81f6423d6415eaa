#!/usr/bin/env bash
# Format, file sizes, the checks of tests/source_checks.txt and clang-tidy over own host code. Usage: lint.sh [--fix | --full] [file.cc ...]
#   --fix   format in place instead of reporting
#   --full  with the check that takes as long as all others together (.clang-tidy)
#   files   run clang-tidy on these only (as listed in build/lint/compile_commands.json); otherwise on all, joined by lint_units.py
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# What each step took, for scripts/costly_steps.py: seconds, name.
mkdir -p build
times=build/lint.times
: > "$times"
export times
timed() { # name, command...
  local from=$EPOCHREALTIME rc=0
  "${@:2}" || rc=$?
  awk -v a="$from" -v b="$EPOCHREALTIME" -v name="$1" 'BEGIN {printf "%.1f %s\n", b - a, name}' >> "$times"
  return "$rc"
}
export -f timed

fix=false
more=""
case "${1:-}" in
  --fix) fix=true; shift ;;
  --full) more=performance-unnecessary-value-param; shift ;;
esac

mapfile -t sources < <(git ls-files -- '*.cc' '*.h' '*.cu' '*.cuh')
if $fix; then
  clang-format-16 -i "${sources[@]}"
else
  formatted() { printf '%s\0' "$@" | xargs -0 -P "$(nproc)" -n 100 clang-format-16 --dry-run -Werror; }
  timed clang-format formatted "${sources[@]}"
fi

# 500 lines is the hard stop for a hand-written file.
too_long=$(wc -l "${sources[@]}" | awk '$2 != "total" && $1 > 500 {print "  " $2 ": " $1 " lines"}')
if [ -n "$too_long" ]; then
  printf 'lint: files over 500 lines, split them by concept:\n%s\n' "$too_long" >&2
  exit 1
fi

# All of them, so that one run names every fault.
failed=""
while read -r check; do
  echo "lint: $check"
  PYTHONDONTWRITEBYTECODE=1 timed "$check" python3 "tests/$check.py" || failed="$failed $check"
done < <(grep -xE '[a-z_]+' tests/source_checks.txt)
[ -z "$failed" ] || { echo "lint: failed:$failed" >&2; exit 1; }

cmake --preset lint > build/lint.configure.log 2>&1 || { cat build/lint.configure.log >&2; exit 1; }
cmake --build --preset lint --target mt_generated -j "$(nproc)" >> build/lint.configure.log 2>&1 ||
  { cat build/lint.configure.log >&2; exit 1; }
database=build/lint
if [ $# -gt 0 ]; then
  units=("$@")
else
  mapfile -t units < <(python3 scripts/lint_units.py build/lint)
  database=build/lint/joined
fi
[ ${#units[@]} -gt 0 ] || { echo "lint: no sources in build/lint/compile_commands.json" >&2; exit 1; }
echo "lint: clang-tidy on ${#units[@]} units"
# bugprone-unchecked-optional-access solves formulas without a bound (until LLVM 17), in an order that depends on addresses: a unit that
# takes it half a minute takes it hours now and then. Such a unit is tried once more, then checked without it.
tidy() {  # a unit
  local limit=${MT_TIDY_SECONDS:-240} rc
  for _ in 1 2; do
    timeout "$limit" clang-tidy-16 -p "$database" --quiet ${more:+"--checks=$more"} "$1"
    rc=$?
    [ "$rc" -eq 124 ] || return "$rc"
    echo "lint: $1: not done within $limit s"
  done
  echo "lint: $1: checked without bugprone-unchecked-optional-access"
  clang-tidy-16 -p "$database" --quiet "--checks=${more:+$more,}-bugprone-unchecked-optional-access" "$1"
}
export -f tidy
export database more
printf '%s\n' "${units[@]}" | xargs -P "$(nproc)" -n 1 bash -c 'timed "clang-tidy $1" tidy "$1"' tidy 2> build/lint.tidy.log ||
  { grep -v 'warnings generated' build/lint.tidy.log >&2; exit 1; }
