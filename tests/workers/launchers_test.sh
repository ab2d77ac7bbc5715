#!/usr/bin/env bash
# The same training under every launcher's variables, as far as one machine allows: TF_CONFIG as ssh would set it, Slurm's
# and torchrun's (set by hand), and a real mpirun and torchrun where they are found. All must write the bytes of one
# process. Pods of Kubernetes need names that a cluster gives them.
#
#   launchers_test.sh LOCKSTEP TRAIN_FOR_BITS
set -euo pipefail
train=$2
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
export LOCKSTEP_JOIN_TIMEOUT=60 LOCKSTEP_COLLECTIVE_TIMEOUT=120
host=$(hostname)
port=$((20000 + RANDOM % 10000))

"$train" 2 "$folder/one"
compare() {
  for worker in 0 1; do
    cmp "$folder/one.0" "$folder/$1.$worker" || {
      echo "launchers: $1 differs from one process" >&2
      exit 1
    }
  done
  echo "launchers: $1 works"
}
# Starts both workers: `start NAME COMMAND` calls COMMAND with the worker's number, which prints its variables.
start() {
  local name=$1 pids=()
  port=$((port + 10))
  for worker in 0 1; do
    mapfile -t variables < <("$2" "$worker")
    env "${variables[@]}" "$train" 1 "$folder/$name" &
    pids+=($!)
  done
  for pid in "${pids[@]}"; do wait "$pid"; done
  compare "$name"
}

by_ssh() {
  echo "TF_CONFIG={\"cluster\": {\"worker\": [\"$host:$port\", \"$host:$((port + 1))\"]}, \"task\": {\"type\": \"worker\", \"index\": $1}}"
}
with_chief() {
  local type=chief
  (($1 == 0)) || type=worker
  echo "TF_CONFIG={\"cluster\": {\"chief\": [\"$host:$port\"], \"worker\": [\"$host:$((port + 1))\"]}, \"task\": {\"type\": \"$type\", \"index\": 0}}"
}
by_slurm() {
  printf '%s\n' "SLURM_PROCID=$1" SLURM_STEP_NUM_TASKS=2 "SLURM_STEP_NODELIST=$host" SLURM_STEP_TASKS_PER_NODE=2
}
by_torchrun() {
  printf '%s\n' "RANK=$1" WORLD_SIZE=2 "LOCAL_RANK=$1" LOCAL_WORLD_SIZE=2 MASTER_ADDR=127.0.0.1 "MASTER_PORT=$port"
}

start ssh by_ssh
start chief with_chief
start slurm by_slurm
start torchrun-variables by_torchrun
if command -v mpirun >/dev/null; then
  mpirun --allow-run-as-root --oversubscribe --bind-to none -n 2 "$train" 1 "$folder/mpirun"
  compare mpirun
fi
if command -v torchrun >/dev/null; then
  torchrun --no-python --nproc-per-node 2 --master-port "$((port + 100))" "$train" 1 "$folder/torchrun"
  compare torchrun
fi
