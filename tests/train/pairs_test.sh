#!/usr/bin/env bash
# What one strategy saves, every other one restores with equal values: all pairs.
#
#   pairs_test.sh LOCKSTEP KILLED_TRAINING STRATEGY...     where 2xworkers1 are two workers with one replica each
set -euo pipefail
lockstep=$1
program=$2
shift 2
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export LOCKSTEP_JOIN_TIMEOUT=60 LOCKSTEP_COLLECTIVE_TIMEOUT=60 LOCKSTEP_DUMP=$work

if [[ " $*" == *" tpu"* ]] && ! "$lockstep" doctor --xla >/dev/null 2>&1; then
  echo "left out, because there is no plugin of XLA"
  exit 77
fi

fail() {
  echo "FAILED: $1" >&2
  exit 1
}
run() { # run STRATEGY ARGUMENT...
  local strategy=$1
  shift
  if [[ $strategy == *xworkers* ]]; then
    "$lockstep" run -n "${strategy%%x*}" -- "$program" "${strategy#*x}" "$@" >"$work/log" 2>&1
  else
    "$program" "$strategy" "$@" >"$work/log" 2>&1
  fi || fail "$strategy $*: $(cat "$work/log")"
}

folders=()
for writer in "$@"; do
  run "$writer" "$work/$writer" 5 "$work/saved.$writer"
  folders+=("$work/$writer")
done
for reader in "$@"; do
  run "$reader" restore "$work/read.$reader" "${folders[@]}"
  number=0
  for writer in "$@"; do
    for file in "$work/read.$reader.$number".[0-9]*; do
      cmp "$work/saved.$writer.0" "$file" || fail "$reader reads other values than $writer has saved"
    done
    number=$((number + 1))
  done
done
echo "pairs: $(($# * $#)) pairs have equal values"
