#!/usr/bin/env bash
# The example that is killed and goes on: killed twice, it prints what an undisturbed run prints.
#
#   resume_test.sh RESUME
set -euo pipefail
resume=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

whole=$("$resume" "$work/whole" | tail -n 1)
"$resume" "$work/run" --kill 130 >"$work/log" 2>&1 && exit 1
"$resume" "$work/run" --kill 90 >"$work/log" 2>&1 && exit 1
grep -q "begins with step 1[0-9]0" "$work/log"
resumed=$("$resume" "$work/run" | tail -n 1)
[[ $whole == done* && $whole == "$resumed" ]] || {
  echo "FAILED: '$whole' and '$resumed' differ" >&2
  exit 1
}
