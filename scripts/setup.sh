#!/usr/bin/env bash
# Installs the Debian packages of scripts/packages.txt that are missing. Usage: setup.sh [--programs] [--check]
#   --programs   only what the programs and the quick start need, not what tests and checks need
#   --check      install nothing; list what is missing and exit 1 if anything is
set -euo pipefail
here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
programs=false
check=false
for option in "$@"; do
  case "$option" in
    --programs) programs=true ;;
    --check) check=true ;;
    *) echo "usage: $0 [--programs] [--check]" >&2; exit 2 ;;
  esac
done

missing=()
while read -r package; do
  case "$package" in '# Tests'*) ! $programs || break ;; esac
  case "$package" in ''|'#'*) continue ;; esac
  # PACKAGE|COMMAND: another source of the command will do.
  case "$package" in *'|'*) command -v "${package#*|}" > /dev/null && continue; package=${package%|*} ;; esac
  if ! dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed; then
    missing+=("$package")
  fi
done < "$here/packages.txt"

if [ ${#missing[@]} -eq 0 ]; then
  exit 0
fi
if $check; then
  echo "setup: missing packages: ${missing[*]}" >&2
  exit 1
fi

sudo=()
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null; then
    echo "setup: not root and no sudo here. As root, run: apt-get install --no-install-recommends ${missing[*]}" >&2
    exit 1
  fi
  sudo=(sudo)
fi
echo "setup: installing ${#missing[@]} Debian packages: ${missing[*]}"
"${sudo[@]}" apt-get update -q
"${sudo[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
