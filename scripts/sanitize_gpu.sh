#!/usr/bin/env bash
# Runs the op tests of our own CUDA kernels under compute-sanitizer, a process per test and several side by side. Needs a GPU.
# Usage: sanitize_gpu.sh [memcheck | racecheck]...     both without arguments; fails where a test fails, takes too long or has an error
# MT_BIN: folder of mt_gpu_tests (build/cuda-release/bin); JOBS: processes at a time (cores); LIMIT: seconds that a test may take (300);
# FILTER: tests, as --gtest_filter has them (all that run no library's kernels, but for speeds, large shapes and calls that fail on purpose)
set -euo pipefail
for tool in "$@"; do
  case "$tool" in memcheck | racecheck) ;; *) sed -n 3,5p "$0" >&2; exit 2 ;; esac
done
tools=("$@")
[[ ${#tools[@]} -gt 0 ]] || tools=(memcheck racecheck)
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
program=${MT_BIN:-$root/build/cuda-release/bin}/mt_gpu_tests
command -v compute-sanitizer > /dev/null || { echo "sanitize_gpu: compute-sanitizer is not in PATH (it comes with CUDA)" >&2; exit 2; }
own='*Act*:*AddNorm*:*Embedding*:*GeluGradGemm*:*Loss*:*Rope*:*BiasGeluGemm*:*SwigluGemm*:*Update*:*Vector*:*Mark*:*CustomKernelsOnFewHeads*'
filter=${FILTER:-$own-*ActivationForms*:*ThePriceOfAMark*:*CannotBeRecorded*:*CannotBeWaitedFor*:*SwigluGemmTest.SeparateForms*:*SwigluGemmTest.ABias*}
logs=$(mktemp -d)
trap 'rm -rf "$logs"' EXIT

mapfile -t tests < <("$program" --gtest_list_tests --gtest_filter="$filter" |
  sed 's/ *#.*//' | awk '/^[^ ]/ {suite = $1} /^  / {print suite $1}')
[[ ${#tests[@]} -gt 0 ]] || { echo "sanitize_gpu: no test matches $filter" >&2; exit 2; }

one() { # tool, test: a line that begins with ok or FAILED
  local log=$logs/$1.${2//\//_}
  local code=0
  timeout "${LIMIT:-300}" compute-sanitizer --tool "$1" --error-exitcode 99 "$program" --gtest_filter="$2" > "$log" 2>&1 || code=$?
  local summary verdict=ok
  summary=$(grep -o 'ERROR SUMMARY.*\|RACECHECK SUMMARY.*' "$log" | tail -n 1)
  if [[ $code -ne 0 || -z $summary ]]; then verdict=FAILED; fi
  grep -q '\[  SKIPPED \]' "$log" && verdict=skipped
  printf '%-8s %-9s %s: %s\n' "$verdict" "$1" "$2" "${summary:-no summary, exit code $code}"
  if [[ $verdict = FAILED ]]; then tail -n 20 "$log"; fi
}
export -f one
export logs program LIMIT

for tool in "${tools[@]}"; do
  printf '%s\0' "${tests[@]}" | xargs -0 -P "${JOBS:-$(nproc)}" -I{} bash -c 'one "$@"' one "$tool" {}
done | tee "$logs/all"
failed=$(grep -c '^FAILED' "$logs/all" || true)
skipped=$(grep -c '^skipped' "$logs/all" || true)
echo "$(grep -c '^ok' "$logs/all" || true) without an error, $skipped skipped, $failed failed"
[[ $failed -eq 0 && $skipped -eq 0 ]]
