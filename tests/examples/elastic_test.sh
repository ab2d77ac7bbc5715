#!/usr/bin/env bash
# Example 14: worker 0 is killed, the others go on, and the job ends with 0 and prints what examples/expected says.
#
#   elastic_test.sh BIN EXPECTED.txt
set -euo pipefail
check=$(cd "$(dirname "$0")" && pwd)/check_output.py
expected=$(realpath "$2")
command=$(python3 "$check" --command "$expected" "$1")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LOCKSTEP_JOIN_TIMEOUT=60 LOCKSTEP_COLLECTIVE_TIMEOUT=60 LOCKSTEP_DUMP=$work
cd "$work"
: >log

fail() {
  echo "FAILED: $1: $(cat "$work/log")" >&2
  exit 1
}
bash -c "exec $command" >"$work/log" 2>&1 &
launcher=$!
for ((i = 0; i < 3000; ++i)); do
  grep -q "step 50, loss" "$work/log" && break
  sleep 0.02
done
kill -9 "$(sed -n 's/.*view 1: process \([0-9]*\) is worker 0 of 3.*/\1/p' "$work/log")" || fail "worker 0 must print its process"
status=0
wait "$launcher" || status=$?
[[ $status == 0 ]] || fail "the job must end with 0, and ended with $status"
python3 "$check" --output "$expected" "$work/log" || fail "it must print what $expected says"
grep -q "2 workers go on after step [0-9]* (memory), [01] steps\? lost" "$work/log" || fail "two workers must go on"
[[ $(grep -c '\] done' "$work/log") == 1 ]] || fail "it must be done once"
echo "elastic example: passed"
