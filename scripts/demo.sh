#!/usr/bin/env bash
# Trains the handwritten digits by the command, on one replica and on two, and says how well and how fast.
#   demo.sh LOCKSTEP
set -euo pipefail
export LC_ALL=C # decimal points
cd "$(dirname "$0")/.."

lockstep=$1
folder=runs/demo-$(date -u +%Y%m%d-%H%M%S)
number() { # number NAME of a JSON line
  sed -E "s/.*\"$1\":(\"[^\"]*\"|[-0-9.e]+).*/\1/" <<<"$2"
}

# The processors that this process may use, one in each line.
mapfile -t processors < <(awk '/^Cpus_allowed_list/ { count = split($2, parts, ","); for (i = 1; i <= count; i++) {
  last = split(parts[i], range, "-"); for (cpu = range[1]; cpu <= range[last]; cpu++) print cpu } }' /proc/self/status)

train() { # train DEVICES PROCESSORS NAME: each replica has one processor, so that the times can be compared
  taskset -c "$2" "$lockstep" train --model cnn --data examples/data/digits.csv --target label --input-shape 1x8x8 \
    --epochs 12 --batch-size 64 --validation 0.2 --optimizer adamw --lr 0.002 --schedule one_cycle \
    --devices "$1" --folder "$folder/$3" --json
}

echo "training on 1 replica"
one=$(train CPU:0 "${processors[0]}" replicas1)
echo "training on 2 replicas"
two=$(train CPU:0,CPU:1 "${processors[0]},${processors[1]:-${processors[0]}}" replicas2)

echo
printf 'accuracy on digits that were held back: %.4f with 1 replica, %.4f with 2\n' \
  "$(number val_accuracy "$one")" "$(number val_accuracy "$two")"
printf 'examples per second: %.0f with 1 replica, %.0f with 2: %.2f times as fast\n' \
  "$(number examples_per_second "$one")" "$(number examples_per_second "$two")" \
  "$(awk -v a="$(number seconds "$one")" -v b="$(number seconds "$two")" 'BEGIN { print a / b }')"
echo "runs: $folder"

"$lockstep" report "$folder/replicas1" "$folder/replicas2" -o "$folder/report.html" >/dev/null
echo "report: $folder/report.html"
if [[ -n ${DISPLAY:-}${WAYLAND_DISPLAY:-} ]] && command -v xdg-open >/dev/null; then
  xdg-open "$folder/report.html" >/dev/null 2>&1 &
fi
