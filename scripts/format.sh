#!/usr/bin/env bash
# Formats the sources: `format.sh -i` in place, `format.sh` only tells what differs.
set -euo pipefail
cd "$(dirname "$0")/.."

mode=(--dry-run --Werror)
if [[ ${1:-} == -i ]]; then
  mode=(-i)
fi
git ls-files --cached --others --exclude-standard '*.h' '*.cpp' | while read -r file; do
  if [[ -f $file ]]; then
    echo "$file"
  fi
done | xargs --no-run-if-empty --max-procs="$(nproc)" --max-args=50 clang-format "${mode[@]}"
