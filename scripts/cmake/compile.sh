#!/usr/bin/env bash
# What CMake starts for each C++ file where ccache is found (MtToolchain.cmake): ccache, in whose sight nothing names the checkout's own
# folder, so that a build in another finds what this one compiled. Usage: compile.sh SOURCES CCACHE COMPILER ARGUMENT...
#   - A file that CMake joined includes its files by whole paths: a copy that includes them from the root is compiled in its place.
#   - CMake gives clang the header whose compiled form it gives, too, by a whole path: it has been read, and is left out.
#   - Compiled headers of clang hold paths: ccache takes the sum of what they were made of for them (CCACHE_PCH_EXTSUM), written here.
set -euo pipefail
root=$1
shift
arguments=()
headers="" # compiled here
read_from="" # the list of what they include
joined=""
previous=""
for argument in "$@"; do
  case "$argument" in
    */Unity/unity_*_cxx.cxx)
      joined=${argument%.cxx}.from_root.cxx
      sed "s|#include \"$root/|#include \"|" "$argument" > "$joined"
      argument=$joined
      ;;
    *.pch | *.gch) [[ $previous != -o ]] || headers=$argument ;;
  esac
  [[ $previous != -MF ]] || read_from=$argument
  arguments+=("$argument")
  previous=$argument
done
if [[ -n $joined ]]; then
  arguments+=("-I$root")
fi
if [[ -n $joined && $PWD == "$root"/* ]]; then
  # ccache gives g++ the folder of the sources as seen from where it runs: ../ for each level.
  below=${PWD#"$root"}
  up=${below//[^\/]/}
  arguments+=("-ffile-prefix-map=${up//\//../}=")
fi

if [[ -n $headers ]]; then
  # Where g++ finds earlier ones, ccache would take what they hold for what is compiled now.
  rm -f "$headers" "$headers.sum"
  "${arguments[@]}"
  # One path a word, as long as none has a space in it; otherwise there is no sum, and ccache reads the compiled headers themselves.
  if [[ $root != *' '* && -f $read_from ]]; then
    { printf '%s\n' "${arguments[@]//"$root"/}"
      sed -e 's/^[^:]*://' -e 's/\\$//' "$read_from" | tr -s ' ' '\n' | grep . | sort -u | xargs sha256sum | sed "s|$root/||"
    } | sha256sum > "$headers.sum.new" && mv "$headers.sum.new" "$headers.sum"
  fi
  exit 0
fi

if [[ " $* " == *" -include-pch "* ]]; then
  without=()
  for ((i = 0; i < ${#arguments[@]}; i++)); do
    if [[ ${arguments[*]:i:3} == "-Xclang -include -Xclang" ]]; then
      i=$((i + 3))
    else
      without+=("${arguments[i]}")
    fi
  done
  arguments=("${without[@]}")
fi
exec "${arguments[@]}"
