#!/usr/bin/env bash
# A training that is killed at random moments ends with the bits of one that never was, and loses no complete
# checkpoint. Kinds of kills in turns: one worker at random, the first worker, all at once, while a checkpoint is being
# written.
#
#   killed_test.sh LOCKSTEP KILLED_TRAINING STRATEGY WORKERS ENGINE
#
# LOCKSTEP_TEST_KILLS: how often it is killed; default 2. KILLED_TRAINING_REDUNDANCY=1: with snapshots in memory, from
# which some start must go on. KILLED_TRAINING_OWN_MEMORY=1: each worker sees only its own.
set -euo pipefail
lockstep=$1
program=$2
strategy=$3
workers=$4
engine=$5
kills=${LOCKSTEP_TEST_KILLS:-2}
# An attempt does up to 14 steps before it is killed.
steps=$((24 + kills * 14))
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LOCKSTEP_JOIN_TIMEOUT=60 LOCKSTEP_COLLECTIVE_TIMEOUT=60 LOCKSTEP_DUMP=$work LOCKSTEP_ENGINE=$engine
export LOCKSTEP_MEMORY_FOLDER=$work/memory
if [[ $engine != auto ]] && "$lockstep" doctor | grep -q "^  $engine: no: built without"; then
  echo "killed: left out, because lockstep was built without $engine"
  exit 77
fi

if [[ $strategy == tpu* ]] && ! "$lockstep" doctor --xla >/dev/null 2>&1; then
  echo "left out, because there is no plugin of XLA"
  exit 77
fi

fail() {
  echo "FAILED: $1" >&2
  exit 1
}
start() { # start FOLDER OUT: in the background
  if [[ $workers == 1 ]]; then
    "$program" "$strategy" "$1" "$steps" "$2" >"$work/log" 2>&1 &
  else
    "$lockstep" run -n "$workers" --grace 1 -- "$program" "$strategy" "$1" "$steps" "$2" >"$work/log" 2>&1 &
  fi
  started=$!
}
newest() { find "$work/run" -maxdepth 1 -name "step_*" 2>/dev/null | sort | tail -n 1 || true; }
is_writing() { compgen -G "$work/run/.step_*.writing-*" >/dev/null; }
wait_until() { # wait_until CONDITION...: or until the training has ended
  while ! "$@" && kill -0 "$started" 2>/dev/null; do sleep 0.002; done
}
has_pids() { [[ $(compgen -G "$work/run.pid.*" | wc -l) == "$workers" ]]; }
has_newer() { [[ $(newest) > $before ]]; }
from_memory=0
note_memory() { if grep -q "restored .* from memory" "$work/log"; then from_memory=1; fi; }

start "$work/whole" "$work/whole.out"
wait "$started" || fail "the undisturbed run failed: $(cat "$work/log")"

export KILLED_TRAINING_PAUSE=15
done_kills=0
has_ended=0
for ((kill = 0; kill < kills; ++kill)); do
  before=$(newest)
  rm -f "$work"/run.pid.*
  start "$work/run" "$work/run.out"
  wait_until has_pids
  # Each attempt gets a step further, so that the test ends.
  wait_until has_newer
  sleep "0.$(printf %03d $((RANDOM % 200)))"
  victims=("$work"/run.pid.*)
  case $((kill % 4)) in
    0) wait_until is_writing ;;
    1) victims=("$work/run.pid.0") ;;
    2) victims=("${victims[RANDOM % ${#victims[@]}]}") ;;
  esac
  for victim in "${victims[@]}"; do
    if kill -9 "$(cat "$victim")" 2>/dev/null; then done_kills=$((done_kills + 1)); fi
  done
  complete=$(newest)
  note_memory
  if wait "$started"; then
    echo "killed: it had ended before kill $kill"
    has_ended=1
    kill=$kills
  fi
  grep -q "passed over" "$work/log" && fail "a complete checkpoint was damaged: $(cat "$work/log")"
  [[ -e $complete ]] || [[ $(newest) > $complete ]] || fail "a complete checkpoint was lost: $complete"
done
[[ $done_kills -gt 0 ]] || fail "nothing was killed"

unset KILLED_TRAINING_PAUSE
if [[ $has_ended == 0 ]]; then
  start "$work/run" "$work/run.out"
  wait "$started" || fail "it does not go on: $(cat "$work/log")"
  grep -q "passed over" "$work/log" && fail "a complete checkpoint was damaged: $(cat "$work/log")"
  grep -q "restored 0" "$work/log" && fail "it began anew: $(cat "$work/log")"
  note_memory
fi
[[ ${KILLED_TRAINING_REDUNDANCY:-0} == 0 ]] || [[ $from_memory == 1 ]] || fail "no snapshot in memory was restored"
for file in "$work"/whole.out.*; do
  cmp "$file" "${file/whole.out/run.out}" || fail "the bits differ from those of an undisturbed run"
done
compgen -G "$work/run/.*writing*" >/dev/null && fail "a temporary folder is left: $(ls -A "$work/run")"
echo "killed: $strategy with $workers workers, $done_kills processes killed, same bits"
