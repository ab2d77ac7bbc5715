#!/usr/bin/env bash
# Two workers of two replicas trace some steps: their files merge into one, on one clock, in which the spans of each
# collective overlap. A wrong variable is an error that names the form.
#
#   trace_test.sh LOCKSTEP TRAIN_FOR_BITS
set -euo pipefail
lockstep=$1
train=$2
here=$(cd "$(dirname "$0")" && pwd)
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export LOCKSTEP_JOIN_TIMEOUT=60 LOCKSTEP_COLLECTIVE_TIMEOUT=120

for engine in shm gloo; do
  if "$lockstep" doctor | grep -q "^  $engine: no: built without"; then
    echo "trace: $engine left out, because lockstep was built without it"
    continue
  fi
  LOCKSTEP_ENGINE=$engine LOCKSTEP_TRACE="steps:3-5,$folder/$engine" \
    "$lockstep" run -n 2 -- "$train" 2 "$folder/bits-$engine"
  "$lockstep" trace "$folder/$engine" -o "$folder/$engine.json"
  if "$lockstep" trace "$folder/$engine" -o "$folder/again.json" | grep -q missing; then
    echo "trace: no worker is missing" >&2
    exit 1
  fi
  python3 "$here/check_trace.py" "$folder/$engine.json" --workers 2 --replicas 2 --steps 3-5
done

if LOCKSTEP_TRACE=3-5 "$train" 2 "$folder/bad" 2>"$folder/error"; then
  echo "trace: a wrong LOCKSTEP_TRACE must be an error" >&2
  exit 1
fi
grep -q "steps:FIRST-LAST,FOLDER" "$folder/error"
if "$lockstep" trace "$folder/none" -o "$folder/none.json" 2>"$folder/error"; then
  echo "trace: a folder that does not exist must be an error" >&2
  exit 1
fi
grep -q "must be a folder" "$folder/error"
