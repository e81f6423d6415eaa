#!/usr/bin/env bash
# Builds and tests. Usage: test.sh [--checks | --full | --full=PART]
#   (nothing)   build cuda-release where nvcc is found, else cpu-release; run every test
#   --checks    format, clang-tidy, checks of the sources, asan-ubsan on all unit tests and, for 30 s, on the fuzzers side by side
#               (MT_FUZZ_SECONDS; 300 s with --full), tsan on the pure folders
#   --full      everything above, with the long forms of the fault tests; each file compiled by itself (cpu-debug)
#   --full=PART one part of that, at most 80 minutes on 2 cores: tests (all but what follows, in their long forms), fault (the fault
#               trials alone), kills (the random kills alone), processors (what computes, under each core type of OpenBLAS that this
#               machine can execute), checks, debug; and soak, no part of --full: a round of all tests on a busy machine, whose
#               failures are appended to build/soak.txt, or MT_SOAK_FILE, each with the number of rounds in which it has failed
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/setup.sh
jobs=$(nproc)
preset=$(bash scripts/preset.sh)
second_try=true
checked=false # by run_checks, or on the way
begun_ns=$(date +%s%N)
stage=""
tested=() # files of results
core_type="" # of OpenBLAS, where it is not the machine's own
fuzz_seconds=${MT_FUZZ_SECONDS:-}
unset MT_FUZZ_SECONDS # the tests' own runs read a fixed number of inputs
threads="" # of a rank, where it is not one
# A frame used after its return is found in 64 KiB of each size of frames (1 MiB, the default, costs each of the many threads more than
# its work), and six callers are told of what was allocated: a quarter of the time less than by default.
asan_options=detect_stack_use_after_return=1:max_uar_stack_size_log=16:malloc_context_size=6
export MT_TEST_RUN="$$-$(date +%s)" # in the environment of all that is started here (left_programs.py)

# A stage ends where the next one begins. Its time is told last, in build/stages.txt, with those of `test.sh` before `test.sh --checks`.
begin() { # stage
  end
  stage=$1
  stage_begin=$SECONDS
}

end() { # word
  [[ -z $stage ]] || printf '%8d s  %s%s\n' $((SECONDS - stage_begin)) "$stage" "${1:-}" >> build/stages.txt
  stage=""
}

build() { # preset, options of the build
  begin "build of $1"
  cmake --preset "$1" -DMT_TESTS=ON > "build/$1.configure.log" 2>&1 || { cat "build/$1.configure.log" >&2; exit 1; }
  sed -n '/^-- Megatrain/,$p' "build/$1.configure.log"
  cmake --build --preset "$1" -j "$jobs" "${@:2}"
}

# A failed test's own words are printed once more at the end. Tests that start programs have a second try, which is told last of
# all and kept in build/flaky.txt (tests/README.md has the table of those that are known); all others have one.
run_ctest() { # folder, options
  local status=0 left=false names results="$1/results$core_type.xml"
  begin "tests of ${1#build/}${core_type:+, $core_type}${threads:+, $threads threads}"
  tested+=("$results")
  rm -f "$results" "$1/again.xml"
  ctest --test-dir "$1" --output-on-failure --output-junit "${results##*/}" "${@:2}" || status=$?
  python3 scripts/left_programs.py "$(cut -d/ -f1,2 <<< "$1")" "$MT_TEST_RUN" || left=true
  ! $left || status=$((status == 0 ? 1 : status))
  [[ $status != 0 ]] || return 0
  [[ -f $results ]] || return "$status"
  python3 scripts/failed_tests.py "$results"
  names=$(python3 scripts/failed_tests.py --names "$results")
  # 8: tests failed, and nothing else did. No second try makes up for a program that was left.
  if [[ $status == 8 && -n $names ]] && $second_try && ! $left; then
    ctest --test-dir "$1" --output-on-failure --output-junit again.xml -R "$names" -L '^(e2e|fault|kills)$' || true
    if python3 scripts/left_programs.py "$(cut -d/ -f1,2 <<< "$1")" "$MT_TEST_RUN" &&
      python3 scripts/failed_tests.py --flaky "$results" "$1/again.xml" >> build/flaky.txt; then
      return 0
    fi
  fi
  python3 scripts/failed_tests.py --list "$results" |
    sed "s/\$/${core_type:+ under $core_type}${threads:+, $threads threads}/" >> build/failed.txt
  end ": failed"
  return "$status"
}

# The last lines, also of .ci/run: of --checks the costliest steps, the longest tests, the stages' times, what failed and what was flaky.
tell() { # exit status
  end "$([[ $1 == 0 ]] || echo ": failed")"
  ! $checked || python3 scripts/costly_steps.py build "$begun_ns"
  for results in "${tested[@]}"; do
    [[ -f $results && $results == */results.xml ]] || continue
    results=${results#build/}
    printf '\nThe longest tests of %s:\n' "${results%/*}"
    python3 scripts/failed_tests.py --longest "build/$results"
  done
  [[ ! -s build/stages.txt ]] || { printf '\nStages:\n'; cat build/stages.txt; }
  [[ ! -s build/failed.txt ]] || cat build/failed.txt
  [[ ! -s build/flaky.txt ]] || cat build/flaky.txt
}

# One test more than there are cores, but no more clusters: half of their time these wait, and what computes runs meanwhile.
run_tests() {
  build "$preset"
  printf '{"version": {"major": 1, "minor": 0}, "local": [{"clusters": [{"id": "all", "slots": %d}]}]}\n' "$jobs" > build/clusters.json
  run_ctest "build/$preset" -j $((jobs + 1)) --resource-spec-file "$PWD/build/clusters.json" "$@"
}

# What computes, under the core types that `processors.py OPTIONS` gives: all of them, whichever fails.
on_processors() { # options, function
  local types turn=0 failed=""
  types=$(python3 scripts/processors.py $1)
  for core_type in $types; do
    OPENBLAS_CORETYPE=$core_type "$2" "$turn" || failed="$failed $core_type"
    turn=$((turn + 1))
  done
  core_type=""
  [[ -z $failed ]] || { echo "test.sh: tests failed under$failed" >&2; return 1; }
}

# As run_ctest, with ranks of two threads, in those tests that look (tests/compute_threads.h).
run_ctest_of_two() { # folder, options
  local status=0
  threads=2
  MT_TEST_THREADS=2 run_ctest "$@" || status=$?
  threads=""
  return "$status"
}

# In a minute under two types, the second with ranks of two threads: the figures of the fixtures and of PyTorch, the oracle's jobs on one
# rank, and ten layouts. What the fixtures' other tests look at, names and stores, no processor changes.
few_that_compute() { # turn
  local gpt2="tp2|dp2_zero1|pp2_interleaved_v2_ramp|pp4_1f1b_string|pp4_dp2_gpipe_selective|tp2_pp2_1f1b_sp" with=run_ctest
  local llama="pp2_1f1b_selective|tp2_pp2_dp2_1f1b_zero1_sp|tp2_selective_sp|pp2_dp2_gpipe_full"
  (($1 % 2 == 0)) || with=run_ctest_of_two
  $with "build/$preset" -j "$jobs" --no-tests=error \
    -R "^(fixtures\.CheckpointTest|Golden\..*|oracle_(gpt2|llama|parallel_residual)|parity\.(($gpt2)_gpt2|($llama)_llama))\$"
}

all_that_compute() {
  local failed=false
  for folder in fixtures golden kernels worker; do
    run_ctest "build/$preset/tests/$folder" -j "$jobs" --no-tests=error || failed=true
  done
  for folder in fixtures golden worker/model worker/parity; do
    run_ctest_of_two "build/$preset/tests/$folder" -j "$jobs" --no-tests=error || failed=true
  done
  ! $failed
}

run_checks() { # options of lint.sh
  checked=true
  begin lint
  bash scripts/lint.sh "$@"
  build asan-ubsan --target mt_unit_tests
  # Leaks are reported by LeakSanitizer at exit; e2e and fault tests run daemons and are left to the release build, and without CUDA
  # those of GPUs would only be skipped.
  # One process more than cores, since some tests wait.
  ASAN_OPTIONS=$asan_options UBSAN_OPTIONS=print_stacktrace=1 \
    run_ctest build/asan-ubsan -j $((jobs + 1)) -LE 'e2e|numeric|fault|gpu|lint'
  run_fuzzers build/asan-ubsan "${fuzz_seconds:-$([[ ${1:-} == --full ]] && echo 300 || echo 30)}"
  build_tsan
  run_ctest build/tsan -j $((jobs + 1)) -L tsan
}

run_fuzzers() { # folder, seconds
  begin fuzzers
  ASAN_OPTIONS=$asan_options UBSAN_OPTIONS=print_stacktrace=1 bash scripts/fuzz.sh "$1" "$2" && return 0
  echo "failed: fuzzers of ${1#build/}" >> build/failed.txt
  end ": failed"
  return 1
}

# Only the pure folders' test programs: gRPC itself is not instrumented.
build_tsan() {
  begin "build of tsan"
  cmake --preset tsan > build/tsan.configure.log 2>&1 || { cat build/tsan.configure.log >&2; exit 1; }
  cmake --build --preset tsan -j "$jobs" --target mt_tsan_tests
}

# The long forms of the tests with a label, or of all but those with it.
run_long() { # -L | -LE, regular expression
  export MT_LONG_TESTS=1
  run_tests "$@"
}

# Two busy loops and a loop of syncs beside four tests at a time, which have four times their time. CTest ends what still runs when the
# part's time is over: the round's line tells by how many tests it is short.
run_soak() {
  local folder="build/$preset/soak" status=0 load stop
  build "$preset"
  rm -rf "$folder"
  python3 scripts/soak.py tests "build/$preset" "$folder"
  python3 scripts/soak.py load "$folder/load" &
  load=$!
  stop=$(date -d "+$((SECONDS < 4200 ? 4800 - SECONDS : 600)) seconds" +%H:%M:%S)
  run_ctest "$folder" -j 4 --stop-time "$stop" || status=$?
  kill "$load" || true
  wait "$load" || true
  python3 scripts/soak.py record "$folder/results.xml" "${MT_SOAK_FILE:-build/soak.txt}" \
    "$(date -u +%F), $(git rev-parse --short HEAD 2>/dev/null || echo 'no commit'), $((SECONDS / 60)) min" || status=1
  return "$status"
}

run_part() { # name
  case "$1" in
    tests) run_long -LE '^(fault|kills)$' ;;
    fault) run_long -L '^fault$' ;;
    kills) run_long -L '^kills$' ;;
    processors)
      build "$preset"
      on_processors "" all_that_compute
      ;;
    checks) run_checks --full ;;
    debug) build cpu-debug ;;
    soak) run_soak ;;
    *) echo "$0: --full=$1: no such part (tests, fault, kills, processors, checks, debug, soak)" >&2; exit 2 ;;
  esac
}

mkdir -p build
[[ ${1:-} == --checks ]] || rm -f build/{stages,flaky}.txt
rm -f build/failed.txt
trap 'tell $?' EXIT
case "${1:-}" in
  "")
    run_tests
    on_processors --two few_that_compute
    ;;
  --checks) run_checks ;;
  --full) second_try=false; for part in tests fault kills processors checks debug; do run_part "$part"; done ;;
  --full=*) second_try=false; run_part "${1#--full=}" ;;
  *) echo "usage: $0 [--checks | --full | --full=PART]" >&2; exit 2 ;;
esac
