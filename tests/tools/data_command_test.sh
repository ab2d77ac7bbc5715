#!/usr/bin/env bash
# The command on data files: what it writes it reads, damage is told with its offset and an exit status.
#   data_command_test.sh LOCKSTEP FIXTURES
set -euo pipefail
# shellcheck source=tests/support/expect.sh
source "$(dirname "$0")/../support/expect.sh"

lockstep=$1
fixtures=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

expect_text '"records":20' "$lockstep" data inspect --json "$fixtures/records/plain.gzip.tfrecord"
expect_text 'offset=21, record=1' "$lockstep" data inspect "$fixtures/records/bad_payload.tfrecord"
expect_text 'tfrecord of tf.Example' "$lockstep" data inspect "$fixtures/records/examples.tfrecord"
expect_text 'x: float32 [4, 3]' "$lockstep" data inspect "$fixtures/numpy/pair.npz"
expect_text 'must be readable' "$lockstep" data inspect "$folder/nothing"
"$lockstep" data inspect "$fixtures/records/plain.tfrecord" >"$folder/log" || fail "a sound file must exit with 0"
! "$lockstep" data inspect "$fixtures/records/cut_in_length.tfrecord" >"$folder/log" || fail "a damaged file must not exit with 0"

"$lockstep" data write "$folder/pair" --from "$fixtures/numpy/pair.npz" --shards 2 --compression zlib >"$folder/log"
expect_text '"compression":"zlib","bytes":' "$lockstep" data inspect --json "$folder/pair-00001-of-00002"
expect_text 'y: int64 [1]' "$lockstep" data inspect "$folder/pair-00000-of-00002"
"$lockstep" data write "$folder/lines.tfrecord" --from "$fixtures/text/lines.txt" >"$folder/log"
expect_text '5 records' "$lockstep" data inspect "$folder/lines.tfrecord"
"$lockstep" data write "$folder/table.tfrecord" --from "$fixtures/text/table.csv" --header >"$folder/log"
expect_text 'name: bytes [1]' "$lockstep" data inspect "$folder/table.tfrecord"
"$lockstep" data write "$folder/again.tfrecord" --from "$folder/lines.tfrecord" "$folder/table.tfrecord" >"$folder/log"
expect_text '"records":9' "$lockstep" data inspect --json "$folder/again.tfrecord"
echo "data command: passed"
