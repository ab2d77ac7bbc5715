#!/usr/bin/env bash
# What `bench gpu` says: without a GPU what to do, with one the fields of each measurement.
#   bench_gpu_command_test.sh LOCKSTEP
set -euo pipefail
# shellcheck source=tests/support/expect.sh
source "$(dirname "$0")/../support/expect.sh"

lockstep=$1

measure() { "$lockstep" bench gpu --seconds 0.05 --json "$@"; }

if printed=$(measure --only nothing 2>&1); then fail "there is no such measurement"; fi
expect_printed 'all_reduce'
if printed=$(measure --model vgg 2>&1); then fail "there is no such model"; fi
expect_printed 'resnet18'

if [[ $(CUDA_VISIBLE_DEVICES='' measure 2>&1) != *'a GPU that LibTorch can use is needed: GPUs=0; run it on a machine with one'* ]]; then
  fail "without a GPU the error must say what is needed"
fi
said=$(measure --only memory --captured-steps 1 2>&1) || true
if [[ $said == *'a GPU that LibTorch can use is needed'* ]]; then
  echo "bench gpu command: the rest is skipped, without a GPU"
  exit 0
fi
printed=$(measure --only eager,captured,memory --model mlp --optimizer sgd --compute float32 --captured-steps 10)
expect_printed '"name":"gpu","card":"'
expect_printed '"name":"gpu/eager","model":"mlp","width":512,"batch":32,"optimizer":"sgd","compute":"float32","seconds_plain":'
expect_printed '"name":"gpu/captured","model":"mlp","width":2048,"batch":256,"optimizer":"sgd","compute":"float32"'
expect_printed '"name":"gpu/memory","model":"mlp","width":512,"batch":32,"optimizer":"adam","compute":"float32","steps":10'
for field in ratio goal met loss_error replayed; do expect_printed "\"$field\":"; done
[[ $(wc -l <<<"$printed") == 8 ]] || fail "the card, three sizes twice, and the memory: $printed"
printed=$(measure --only all_reduce)
expect_printed '"name":"gpu/all_reduce","replicas":2,"bytes":268435456'
expect_printed '"right":true'
echo "bench gpu command: passed"
