#!/usr/bin/env bash
# The conformance suite on several workers: every worker runs all of it, in step with the others.
#
#   conformance_test.sh LOCKSTEP CONFORMANCE_TEST ENGINE WORKERS
set -euo pipefail
lockstep=$1
suite=$2
engine=$3
workers=$4
export LOCKSTEP_ENGINE=$engine LOCKSTEP_JOIN_TIMEOUT=60 LOCKSTEP_COLLECTIVE_TIMEOUT=120
LOCKSTEP_DUMP=$(mktemp -d)
export LOCKSTEP_DUMP
trap 'rm -rf "$LOCKSTEP_DUMP"' EXIT
if "$lockstep" doctor | grep -q "^  $engine: no: built without"; then
  echo "conformance: left out, because lockstep was built without $engine"
  exit 77
fi
if [[ $engine == mpi ]]; then
  if ! command -v mpirun >/dev/null; then
    echo "conformance: left out, because mpirun was not found"
    exit 77
  fi
  mpirun --allow-run-as-root --oversubscribe --bind-to none -n "$workers" "$suite" --gtest_brief=1
else
  "$lockstep" run -n "$workers" -- "$suite" --gtest_brief=1
fi
