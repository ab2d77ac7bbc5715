#!/usr/bin/env bash
# What `bench xla` says: which fields there are, the memory of split parameters, and what is wrong with a plugin.
#   bench_xla_command_test.sh LOCKSTEP
set -euo pipefail
# shellcheck source=tests/support/expect.sh
source "$(dirname "$0")/../support/expect.sh"

lockstep=$1

measure() { "$lockstep" bench xla --seconds 0.05 --json "$@"; }

if printed=$(LOCKSTEP_PJRT_PLUGIN=/nowhere/xla_cpu_pjrt.so measure --model tiny 2>&1); then
  fail "a plugin that is not there must fail"
fi
expect_printed '/nowhere/xla_cpu_pjrt.so'
expect_printed 'the measurement failed: model=tiny, batch=4, replicas=1, logical_devices=1'

if ! "$lockstep" doctor --xla >/dev/null 2>&1; then
  if printed=$(measure --model tiny 2>&1); then fail "without a plugin there is nothing to measure"; fi
  expect_printed 'a plugin is needed'
  echo "bench xla command: the rest is skipped, without a plugin"
  exit 0
fi

printed=$(measure --model tiny)
expect_printed '"name":"xla","model":"tiny","batch":4,"width":8,"replicas":1,"logical_devices":1,"optimizer":"sgd","platform":"'
for field in seconds_replay seconds_trace seconds_eager vs_eager compile_seconds host_trace_seconds host_replay_seconds; do
  expect_printed "\"$field\":"
done
[[ $printed != *speedup_logical* ]] || fail "one logical device has nothing to be compared with: $printed"

# First layer 784x16 and its bias, second 16x16, of 4 bytes: each of two logical devices has half.
printed=$(measure --model mlp --width 16 --batch 8 --logical-devices 2)
expect_printed '"replicas":1,"logical_devices":2,'
expect_printed '"fallbacks":0,'
expect_printed "\"split_parameter_bytes\":$((4 * (784 * 16 + 16 + 256))),\"bytes_per_logical_device\":$((2 * (784 * 16 + 16 + 256)))"
expect_printed '"speedup_logical":'

printed=$(measure --model mlp --width 16 --batch 8)
[[ $(wc -l <<<"$printed") == 2 ]] || fail "the MLP has a line for one replica and one for two: $printed"
expect_printed '"replicas":2,'

for model in cnn gpt; do
  printed=$(measure --model "$model" --width 64 --batch 2 --tokens 4 --layers 1)
  expect_printed "\"model\":\"$model\",\"batch\":2,\"width\":64"
  expect_printed '"fallbacks":0,'
done

if printed=$(measure --model mlp --batch 3 --replicas 2 2>&1); then fail "three examples are no equal parts for two"; fi
expect_printed 'replicas must get equal parts of the batch: batch=3, replicas=2'
echo "bench xla command: passed"
