#!/usr/bin/env bash
# Four replicas as 1x4, 2x2 and 4x1 processes x replicas, over every engine: all must write the same bytes.
#
#   same_bits_test.sh LOCKSTEP TRAIN_FOR_BITS
set -euo pipefail
lockstep=$1
train=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export LOCKSTEP_JOIN_TIMEOUT=60 LOCKSTEP_COLLECTIVE_TIMEOUT=120

"$train" 4 "$folder/one"
compare() {
  for file in "$folder/$1".*; do
    cmp "$folder/one.0" "$file" || {
      echo "same_bits: $1 differs from one process: $file" >&2
      exit 1
    }
  done
  echo "same_bits: $1 has the bits of one process"
}

for engine in shm gloo; do
  if "$lockstep" doctor | grep -q "^  $engine: no: built without"; then
    echo "same_bits: $engine left out, because lockstep was built without it"
    continue
  fi
  for layout in 2x2 4x1; do
    LOCKSTEP_ENGINE=$engine "$lockstep" run -n "${layout%x*}" -- "$train" "${layout#*x}" "$folder/$engine-$layout"
    compare "$engine-$layout"
  done
done
if command -v mpirun >/dev/null; then
  for layout in 2x2 4x1; do
    LOCKSTEP_ENGINE=mpi mpirun --allow-run-as-root --oversubscribe --bind-to none -n "${layout%x*}" \
      "$train" "${layout#*x}" "$folder/mpi-$layout"
    compare "mpi-$layout"
  done
else
  echo "same_bits: mpi left out, because mpirun was not found"
fi
