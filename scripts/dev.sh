#!/usr/bin/env bash
# Builds and tests what the changes since main affect, uncommitted ones included, and prints first what that is and why.
# Usage: dev.sh [preset] [--list] [--base REF | --files FILE...]; --help says more. It checks a change while it is made: before it
# is handed in, scripts/test.sh runs everything.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
exec env PYTHONDONTWRITEBYTECODE=1 python3 scripts/dev.py "$@"
