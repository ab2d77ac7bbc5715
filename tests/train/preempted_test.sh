#!/usr/bin/env bash
# SIGTERM to one worker or to the launcher: all workers save the same step and leave with status 75; started again they
# go on. A second SIGTERM, more than a second later, ends at once.
#
#   preempted_test.sh LOCKSTEP KILLED_TRAINING
set -euo pipefail
lockstep=$1
program=$2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LOCKSTEP_JOIN_TIMEOUT=60 LOCKSTEP_COLLECTIVE_TIMEOUT=60 LOCKSTEP_DUMP=$work KILLED_TRAINING_PAUSE=20

fail() {
  echo "FAILED: $1: $(cat "$work/log")" >&2
  exit 1
}
wait_for() { # wait_for FILE
  for ((i = 0; i < 3000; ++i)); do
    [[ -e $1 ]] && return
    sleep 0.02
  done
  fail "$1 does not come"
}
"$program" mirrored2 "$work/whole" 30 "$work/whole.out" >"$work/log" 2>&1 || fail "the undisturbed run"

# One process.
"$program" mirrored2 "$work/run" 30 "$work/run.out" >"$work/log" 2>&1 &
started=$!
wait_for "$work/run/step_0000000002"
kill -TERM "$started"
status=0
wait "$started" || status=$?
[[ $status == 75 ]] || fail "the status must be 75, and is $status"
step=$(sed -n 's/preempted after //p' "$work/log")
[[ -e $work/run/step_$(printf %010d "$step") ]] || fail "step $step must be saved"
"$program" mirrored2 "$work/run" 30 "$work/run.out" >"$work/log" 2>&1 || fail "it must go on"
grep -q "restored $step" "$work/log" || fail "it must go on after step $step"
cmp "$work/whole.out.0" "$work/run.out.0" || fail "the bits differ"

# Two workers, one of which gets the signal.
"$lockstep" run -n 2 --no-prefix -- "$program" workers1 "$work/workers" 30 "$work/workers.out" >"$work/log" 2>&1 &
started=$!
wait_for "$work/workers/step_0000000002"
kill -TERM "$(cat "$work/workers.pid.1")"
status=0
wait "$started" || status=$?
[[ $status == 75 ]] || fail "the status must be 75, and is $status"
[[ $(grep "preempted after" "$work/log" | sort -u | wc -l) == 1 ]] || fail "all workers must leave after one step"
[[ $(grep -c "preempted after" "$work/log") == 2 ]] || fail "both workers must leave"

# The launcher gets it, and the workers go on with the same bits.
"$lockstep" run -n 2 --no-prefix -- "$program" workers1 "$work/workers" 40 "$work/workers.out" >"$work/log" 2>&1 &
started=$!
wait_for "$work/workers.pid.0"
step=$(find "$work/workers" -maxdepth 1 -name 'step_*' | sort | tail -n 1)
while [[ ! $(find "$work/workers" -maxdepth 1 -name 'step_*' | sort | tail -n 1) > $step ]]; do sleep 0.02; done
kill -TERM "$started"
status=0
wait "$started" || status=$?
[[ $status == 75 ]] || fail "the launcher's status must be 75, and is $status"
KILLED_TRAINING_PAUSE=0 "$lockstep" run -n 2 -- "$program" workers1 "$work/workers" 40 "$work/workers.out" >"$work/log" 2>&1 ||
  fail "they must go on"
KILLED_TRAINING_PAUSE=0 "$program" mirrored2 "$work/other" 40 "$work/other.out" >"$work/log" 2>&1 || fail "undisturbed"
cmp "$work/other.out.0" "$work/workers.out.0" ||
  fail "the bits of two workers differ from those of two replicas"

# The launcher and all workers get it: each worker twice in one moment.
"$lockstep" run -n 2 --no-prefix -- "$program" workers1 "$work/all" 40 "$work/all.out" >"$work/log" 2>&1 &
started=$!
wait_for "$work/all/step_0000000002"
kill -TERM "$(cat "$work/all.pid.0")" "$(cat "$work/all.pid.1")" "$started"
status=0
wait "$started" || status=$?
[[ $status == 75 ]] || fail "signals to all processes are one notice; the status must be 75, and is $status"
[[ $(grep -c "preempted after" "$work/log") == 2 ]] || fail "both workers must save and leave"

# A later signal ends it at once, here in a step that takes a minute.
KILLED_TRAINING_PAUSE=60000 "$program" one "$work/slow" 30 "$work/slow.out" >"$work/log" 2>&1 &
started=$!
wait_for "$work/slow.pid.0"
for ((i = 0; i < 500; ++i)); do
  grep -q "restored 0" "$work/log" && break
  sleep 0.02
done
kill -TERM "$started"
sleep 1.2
kill -TERM "$started" 2>/dev/null || true
status=0
wait "$started" || status=$?
[[ $status == 143 ]] || fail "a second signal must end it by default, and the status is $status"
echo "preempted: passed"
