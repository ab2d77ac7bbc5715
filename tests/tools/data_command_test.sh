#!/usr/bin/env bash
# The command on data files: what it writes it reads, damage is told with its offset and an exit status.
#   data_command_test.sh LOCKSTEP FIXTURES
set -euo pipefail

lockstep=$1
fixtures=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

fail() {
  echo "FAILED: $1" >&2
  exit 1
}
expect() { # expect TEXT in the output of the command behind it
  local text=$1 output
  shift
  output=$("$@" 2>&1) || true
  [[ $output == *"$text"* ]] || fail "'$*' must print '$text', printed: $output"
}

expect '"records":20' "$lockstep" data inspect --json "$fixtures/records/plain.gzip.tfrecord"
expect 'offset=21, record=1' "$lockstep" data inspect "$fixtures/records/bad_payload.tfrecord"
expect 'tfrecord of tf.Example' "$lockstep" data inspect "$fixtures/records/examples.tfrecord"
expect 'x: float32 [4, 3]' "$lockstep" data inspect "$fixtures/numpy/pair.npz"
expect 'must be readable' "$lockstep" data inspect "$folder/nothing"
"$lockstep" data inspect "$fixtures/records/plain.tfrecord" >"$folder/log" || fail "a sound file must exit with 0"
! "$lockstep" data inspect "$fixtures/records/cut_in_length.tfrecord" >"$folder/log" || fail "a damaged file must not exit with 0"

"$lockstep" data write "$folder/pair" --from "$fixtures/numpy/pair.npz" --shards 2 --compression zlib >"$folder/log"
expect '"compression":"zlib","bytes":' "$lockstep" data inspect --json "$folder/pair-00001-of-00002"
expect 'y: int64 [1]' "$lockstep" data inspect "$folder/pair-00000-of-00002"
"$lockstep" data write "$folder/lines.tfrecord" --from "$fixtures/text/lines.txt" >"$folder/log"
expect '5 records' "$lockstep" data inspect "$folder/lines.tfrecord"
"$lockstep" data write "$folder/table.tfrecord" --from "$fixtures/text/table.csv" --header >"$folder/log"
expect 'name: bytes [1]' "$lockstep" data inspect "$folder/table.tfrecord"
"$lockstep" data write "$folder/again.tfrecord" --from "$folder/lines.tfrecord" "$folder/table.tfrecord" >"$folder/log"
expect '"records":9' "$lockstep" data inspect --json "$folder/again.tfrecord"
echo "data command: passed"
