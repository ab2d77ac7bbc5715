#!/usr/bin/env bash
# What `bench step` says of strategies: which fields there are, and the memory that parameters take.
#   bench_command_test.sh LOCKSTEP
set -euo pipefail
# shellcheck source=tests/support/expect.sh
source "$(dirname "$0")/../support/expect.sh"

lockstep=$1

step() { "$lockstep" bench step --width 16 --batch 4 --seconds 0.05 --json "$@"; }

# An MLP 784-16-16-10 has 13002 parameters of 4 bytes: once under central storage, a copy for each replica when mirrored.
for replicas in 1 2 3; do
  printed=$(step --strategy central --replicas "$replicas" --rows 1000 --columns 32 --lookups 50)
  expect_printed '"strategy":"central","parameter_bytes":52008,"efficiency_mirrored":'
  expect_printed '"against_mirrored":'
  [[ $(wc -l <<<"$printed") == 2 ]] || fail "central storage has a line for the MLP and one for the table: $printed"
  printed=$(step --strategy mirrored --replicas "$replicas")
  expect_printed "\"strategy\":\"mirrored\",\"parameter_bytes\":$((replicas * 52008))"
  [[ $printed != *against_mirrored* && $(wc -l <<<"$printed") == 1 ]] || fail "nothing to compare mirrored with: $printed"
done

# All 2000 lookups of a table of one row are of that row. A step reads 2000 ids and rows and gradients, reads and writes the
# row, and with it both averages of Adam.
printed=$(step --strategy central --replicas 1 --rows 1 --columns 32 --lookups 2000 --optimizer adam | tail -n 1)
expect_printed '"name":"step/embedding","strategy":"central","rows":1,"columns":32,"lookups":2000,"replicas":1,"optimizer":"adam"'
expect_printed "\"bytes_moved\":$((2000 * (8 + 2 * 128) + 2 * 128 * 3)),\"bytes_table\":128,\"rows_small_table\":1"
for field in seconds seconds_plain ratio seconds_small_table ratio_small_table; do expect_printed "\"$field\":"; done

if printed=$(step --strategy central --replicas 2 --rows 1 2>&1); then fail "a table with less rows than replicas must fail"; fi
expect_printed 'every replica needs a row of the table: rows=1, replicas=2'
if printed=$(step --strategy central --workers 2 2>&1); then fail "central storage has no workers"; fi
expect_printed 'excludes'

# The models, with the numbers of parameters that their structures have.
for model in resnet18:11181642 gpt:3688936 lstm:2078672; do
  printed=$("$lockstep" bench step --model "${model%:*}" --batch 1 --seconds 0.05 --json)
  expect_printed "\"name\":\"step/${model%:*}\",\"strategy\":\"mirrored\",\"batch\":1,\"replicas\":2,\"optimizer\":\"sgd\""
  expect_printed "\"parameters\":${model#*:}"
  for field in seconds_n seconds_alone fraction_of_alone; do expect_printed "\"$field\":"; done
  [[ $(wc -l <<<"$printed") == 1 ]] || fail "a model has one line: $printed"
done
if printed=$("$lockstep" bench step --model vgg 2>&1); then fail "there is no such model"; fi
expect_printed 'resnet18'
if printed=$("$lockstep" bench step --model gpt --width 16 2>&1); then fail "the width is that of the MLP"; fi
expect_printed 'excludes'

# Checkpoints: all fields, and nothing left in the folder.
folder=$(mktemp -d)
printed=$("$lockstep" bench checkpoint --width 16 --batch 4 --steps 1 --repeats 1 --folder "$folder" --json)
expect_printed '"name":"checkpoint","width":16,"batch":4,"replicas":2,"optimizer":"adam","steps":1,"bytes":'
for field in stall_fraction snapshot_fraction write_fraction restore_fraction seconds_save_call; do expect_printed "\"$field\":"; done
rmdir "$folder" || fail "the folder must be empty again"
echo "bench command: passed"
