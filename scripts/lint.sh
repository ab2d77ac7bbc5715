#!/usr/bin/env bash
# Runs every check of the sources that is no test, and tells at the end which of them failed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

failed=()
check() {
  local name=$1
  shift
  echo "lint: $name"
  "$@" || failed+=("$name")
}

check format scripts/format.sh
check layers scripts/check_layers.py
check shellcheck shellcheck -x scripts/*.sh bench/*.sh tests/examples/*.sh tests/support/*.sh tests/tools/*.sh tests/train/*.sh tests/workers/*.sh .ci/run
check alone scripts/check_alone.py --build build/release
check links scripts/check_links.py
check blocks scripts/check_code_blocks.py
check pictures docs/pictures/make_pictures.py --check
check site scripts/make_docs.py
check peers scripts/check_peers.py

if ((${#failed[@]})); then
  echo "lint: failed: ${failed[*]}" >&2
  exit 1
fi
echo "lint: all is well"
