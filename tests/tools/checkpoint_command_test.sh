#!/usr/bin/env bash
# The command on checkpoints: files become checkpoints and back, damage and differences are told by an exit status.
#   checkpoint_command_test.sh LOCKSTEP FIXTURES
set -euo pipefail
# shellcheck source=tests/support/expect.sh
source "$(dirname "$0")/../support/expect.sh"

lockstep=$1
fixtures=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

checkpoint() { "$lockstep" checkpoint "$@"; }

weights=$fixtures/pytorch/nested.pt
expect 0 'model.first.weight: float32 [3, 4], 48 bytes' checkpoint inspect "$weights"
expect 0 '"to":"' checkpoint convert "$weights" "$folder/kept" --step 12 --json
expect 0 'step 12,' checkpoint inspect "$folder/kept/step_0000000012"
expect 0 '"epoch":3' checkpoint inspect --json "$folder/kept"
expect 0 'have equal values' checkpoint diff "$weights" "$folder/kept"
expect 1 'is there already' checkpoint convert "$weights" "$folder/kept" --step 12

# To one file and back: the same bytes.
expect 0 '' checkpoint convert "$folder/kept" "$folder/one.safetensors"
expect 0 'have equal values' checkpoint diff "$folder/one.safetensors" "$folder/kept"
expect 0 '' checkpoint convert "$folder/one.safetensors" "$folder/again"
cmp "$folder/kept/step_0000000012/part_00000_of_00001.safetensors" \
  "$folder/again/step_0000000012/part_00000_of_00001.safetensors" || fail "a checkpoint must survive the way to a file and back"

# Parts of a limited size, so that not everything is in memory at once.
safetensors() { # safetensors FILE HEADER BYTES: zeros as data
  printf "\\x$(printf %02x $((${#2} % 256)))\\x$(printf %02x $((${#2} / 256)))\\0\\0\\0\\0\\0\\0%s" "$2" >"$1"
  head -c "$3" /dev/zero >>"$1"
}
mib=1048576
tensor() { echo "\"$1\":{\"dtype\":\"U8\",\"shape\":[$(($3 - $2))],\"data_offsets\":[$2,$3]}"; }
header="{\"__metadata__\":{\"lockstep.step\":\"7\"},$(tensor a 0 $mib),$(tensor b $mib $((mib + 9))),"
header+="$(tensor c $((mib + 9)) $((2 * mib))),$(tensor d $((2 * mib)) $((5 * mib)))}"
safetensors "$folder/large.safetensors" "$header" $((5 * mib))
expect 0 '' checkpoint convert "$folder/large.safetensors" "$folder/large" --part-size 1
for part in part_0000{0,1,2}_of_00003.safetensors; do
  [[ -f $folder/large/step_0000000007/$part ]] || fail "there must be $part: $(ls "$folder/large/step_0000000007")"
done
expect 0 'sound true' checkpoint verify "$folder/large"
expect 0 'have equal values' checkpoint diff "$folder/large.safetensors" "$folder/large"
safetensors "$folder/soon.safetensors" "${header/\"7\"/\"soon\"}" $((5 * mib))
expect 1 'must have a number of steps' checkpoint convert "$folder/soon.safetensors" "$folder/soon"
expect 0 '' checkpoint convert "$folder/soon.safetensors" "$folder/soon" --step 3

# A conversion that fails leaves nothing.
printf 'X' | dd of="$folder/large/step_0000000007/part_00002_of_00003.safetensors" bs=1 seek=1000000 conv=notrunc status=none
expect 1 'is damaged' checkpoint convert "$folder/large" "$folder/unfinished"
[[ -z $(ls -A "$folder/unfinished") ]] || fail "nothing must be left: $(ls -A "$folder/unfinished")"

# The latest of several; all are verified.
expect 0 '' checkpoint convert "$fixtures/pytorch/state_dict.pt" "$folder/kept" --step 20
expect 0 'step_0000000020 (the latest)' checkpoint inspect "$folder/kept"
expect 0 'step 20, bytes' checkpoint verify "$folder/kept"

expect 1 'name epoch, difference only in the second' checkpoint diff "$folder/kept" "$weights"
expect 1 '"largest":' checkpoint diff --json "$fixtures/pytorch/optimizer_adam.pt" "$fixtures/pytorch/optimizer_adamw.pt"
expect 0 'have equal values' checkpoint diff --tolerance 1e9 "$fixtures/pytorch/optimizer_sgd.pt" \
  "$fixtures/pytorch/optimizer_sgd.pt"

# Damage is named.
part=$folder/kept/step_0000000012/part_00000_of_00001.safetensors
printf 'X' | dd of="$part" bs=1 seek=5000 conv=notrunc status=none
expect 1 'sound false, damage' checkpoint verify "$folder/kept"
expect 1 'part_00000_of_00001.safetensors' checkpoint verify --json "$folder/kept/step_0000000012"
expect 0 'sound true' checkpoint verify "$folder/kept/step_0000000020"
truncate -s 100 "$part"
expect 1 'as long as the index says' checkpoint inspect "$folder/kept/step_0000000012"
rm "$folder/kept/step_0000000012/index.json"
expect 1 'index.json' checkpoint verify "$folder/kept/step_0000000012"

expect 1 'there is no such folder' checkpoint inspect "$folder/nothing"
expect 1 'must be safetensors' checkpoint inspect "$fixtures/pytorch/expected.json"
expect 1 'FOLDER' checkpoint inspect
echo "checkpoint command: passed"
