#!/usr/bin/env bash
# Builds and tests. Usage: test.sh [--checks | --full | --full=PART]
#   (nothing)   build cuda-release where nvcc is found, else cpu-release; run every test
#   --checks    format, clang-tidy, checks of the sources, asan-ubsan on all unit tests, tsan on the pure folders
#   --full      everything above, with the long forms of the fault tests; each file compiled by itself (cpu-debug)
#   --full=PART one part of that, at most 80 minutes on 2 cores: tests (all but what follows, in their long forms), fault (the fault
#               trials alone), kills (the random kills alone), checks, debug
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
bash scripts/setup.sh
jobs=$(nproc)
preset=$(bash scripts/preset.sh)
second_try=true
stage=""
tested=() # folders
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

build() { # preset
  begin "build of $1"
  cmake --preset "$1" -DMT_TESTS=ON > "build/$1.configure.log" 2>&1 || { cat "build/$1.configure.log" >&2; exit 1; }
  sed -n '/^-- Megatrain/,$p' "build/$1.configure.log"
  cmake --build --preset "$1" -j "$jobs"
}

# A failed test's own words are printed once more at the end. Tests that start programs have a second try, which is told last of
# all and kept in build/flaky.txt (tests/README.md has the table of those that are known); all others have one.
run_ctest() { # folder, options
  local status=0 left=false names
  begin "tests of ${1#build/}"
  tested+=("$1")
  rm -f "$1/results.xml" "$1/again.xml"
  ctest --test-dir "$1" --output-on-failure --output-junit results.xml "${@:2}" || status=$?
  python3 scripts/left_programs.py "$1" "$MT_TEST_RUN" || left=true
  ! $left || status=$((status == 0 ? 1 : status))
  [[ $status != 0 ]] || return 0
  [[ -f $1/results.xml ]] || return "$status"
  python3 scripts/failed_tests.py "$1/results.xml"
  python3 scripts/failed_tests.py --list "$1/results.xml" > build/failed.txt
  names=$(python3 scripts/failed_tests.py --names "$1/results.xml")
  # 8: tests failed, and nothing else did. No second try makes up for a program that was left.
  if [[ $status == 8 && -n $names ]] && $second_try && ! $left; then
    ctest --test-dir "$1" --output-on-failure --output-junit again.xml -R "$names" -L '^(e2e|fault|kills)$' || true
    python3 scripts/left_programs.py "$1" "$MT_TEST_RUN" || return "$status"
    python3 scripts/failed_tests.py --flaky "$1/results.xml" "$1/again.xml" >> build/flaky.txt && rm build/failed.txt && return 0
  fi
  return "$status"
}

# The last lines, also of .ci/run: the longest tests, the stages' times, what failed and what was flaky.
tell() { # exit status
  end "$([[ $1 == 0 ]] || echo ": failed")"
  for folder in "${tested[@]}"; do
    [[ -f $folder/results.xml ]] || continue
    printf '\nThe longest tests of %s:\n' "${folder#build/}"
    python3 scripts/failed_tests.py --longest "$folder/results.xml"
  done
  [[ ! -s build/stages.txt ]] || { printf '\nStages:\n'; cat build/stages.txt; }
  [[ ! -s build/failed.txt ]] || cat build/failed.txt
  [[ ! -s build/flaky.txt ]] || cat build/flaky.txt
}

run_tests() {
  build "$preset"
  run_ctest "build/$preset" -j "$jobs" "$@"
}

run_checks() { # options of lint.sh
  begin lint
  bash scripts/lint.sh "$@"
  build asan-ubsan
  # Leaks are reported by LeakSanitizer at exit; e2e and fault tests run daemons and are left to the release build.
  # One process more than cores, since some tests wait.
  ASAN_OPTIONS=detect_stack_use_after_return=1 UBSAN_OPTIONS=print_stacktrace=1 \
    run_ctest build/asan-ubsan -j $((jobs + 1)) -LE 'e2e|numeric|fault|lint'
  build_tsan
  run_ctest build/tsan -j $((jobs + 1)) -L tsan
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

run_part() { # name
  case "$1" in
    tests) run_long -LE '^(fault|kills)$' ;;
    fault) run_long -L '^fault$' ;;
    kills) run_long -L '^kills$' ;;
    checks) run_checks --full ;;
    debug) build cpu-debug ;;
    *) echo "$0: --full=$1: no such part (tests, fault, kills, checks, debug)" >&2; exit 2 ;;
  esac
}

mkdir -p build
[[ ${1:-} == --checks ]] || rm -f build/{stages,flaky}.txt
rm -f build/failed.txt
trap 'tell $?' EXIT
case "${1:-}" in
  "") run_tests ;;
  --checks) run_checks ;;
  --full) second_try=false; for part in tests fault kills checks debug; do run_part "$part"; done ;;
  --full=*) second_try=false; run_part "${1#--full=}" ;;
  *) echo "usage: $0 [--checks | --full | --full=PART]" >&2; exit 2 ;;
esac
