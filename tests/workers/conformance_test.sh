#!/usr/bin/env bash
# The conformance suite on several workers: every worker runs all of it, in step with the others.
#
#   LOCKSTEP_TEST_RESULTS=PATH conformance_test.sh LOCKSTEP CONFORMANCE_TEST ENGINE WORKERS
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
# Every process writes its own results, for scripts/check_skips.py.
# shellcheck disable=SC2016
suite_of_worker=(bash -c 'GTEST_OUTPUT="xml:$0.$$.xml" exec "$@"' "$LOCKSTEP_TEST_RESULTS" "$suite" --gtest_brief=1)
if [[ $engine == mpi ]]; then
  if ! command -v mpirun >/dev/null; then
    echo "conformance: left out, because mpirun was not found"
    exit 77
  fi
  mpirun --allow-run-as-root --oversubscribe --bind-to none -n "$workers" "${suite_of_worker[@]}"
else
  "$lockstep" run -n "$workers" -- "${suite_of_worker[@]}"
fi
