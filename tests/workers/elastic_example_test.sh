#!/usr/bin/env bash
# The example of docs/elastic.md: one worker kills itself, the others go on, and the job ends with 0.
#
#   elastic_example_test.sh LOCKSTEP ELASTIC
set -euo pipefail
lockstep=$1
program=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LOCKSTEP_JOIN_TIMEOUT=60 LOCKSTEP_COLLECTIVE_TIMEOUT=60 LOCKSTEP_DUMP=$work

fail() {
  echo "FAILED: $1: $(cat "$work/log")" >&2
  exit 1
}
"$lockstep" run -n 2:3 --restarts 3 -- "$program" "$work/run" 150 >"$work/log" 2>&1 &
launcher=$!
for ((i = 0; i < 3000; ++i)); do
  grep -q "step 50, loss" "$work/log" && break
  sleep 0.02
done
kill -9 "$(sed -n 's/.*view 1: process \([0-9]*\) is worker 0 of 3.*/\1/p' "$work/log")" || fail "worker 0 must print its process"
status=0
wait "$launcher" || status=$?
[[ $status == 0 ]] || fail "the job must end with 0, and ended with $status"
grep -q "was lost (signal SIGKILL (Killed)) after step" "$work/log" || fail "the launcher must tell of the loss"
grep -q "2 workers go on after step [0-9]* (memory), [01] steps\? lost" "$work/log" || fail "two workers must go on"
[[ $(grep -c '\] done' "$work/log") == 1 ]] || fail "it must be done once"
echo "elastic example: passed"
