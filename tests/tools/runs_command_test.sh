#!/usr/bin/env bash
# The command on run folders: tables, details, differences, and runs whose process is gone.
#   runs_command_test.sh LOCKSTEP
set -euo pipefail
# shellcheck source=tests/support/expect.sh
source "$(dirname "$0")/../support/expect.sh"

lockstep=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT

runs() { "$lockstep" runs "$@"; }

make_run() { # make_run NAME STATE PID LR CREATED
  mkdir -p "$folder/runs/$1"
  cat >"$folder/runs/$1/run.json" <<END
{"format": 1, "name": "$1", "created": "$5", "started": "$5", "ended": null, "state": "$2", "reason": "", "command": ["train"],
 "host": "$(hostname)", "pid": $3, "seed": 1, "git": null, "configuration": {"optimizer": {"lr": $4}, "batch": 32},
 "strategy": {"name": "MirroredStrategy", "workers": 1, "replicas": 2, "devices": ["CPU:0", "CPU:1"]}}
END
}
now=$(date -u +%Y-%m-%dT%H:%M:%SZ)
make_run first finished 1 0.1 2026-01-01T00:00:00Z
cat >"$folder/runs/first/metrics.jsonl" <<'END'
{"epoch": 0, "step": 10, "seconds": 60.5, "examples": 320, "loss": 2.0, "val_loss": "NaN", "accuracy": 0.1, "val_accuracy": 0.2}
{"epoch": 1, "step": 20, "seconds": 60.5, "examples": 320, "loss": 1.0, "val_loss": 1.5, "accuracy": 0.6, "val_accuracy": 0.5}
{"epoch": 2, "step": 30, "seconds": 60.5, "examples": 320, "loss": 0.5, "val_loss": 1.75, "accuracy": 0.9, "val_accuracy": 0.4}
{"epoch": 3, "st
END
make_run second running $$ 0.25 "$now"
printf '{"step": 7, "seconds": 1.5}\n' >"$folder/runs/second/steps.jsonl"

expect 0 '1.5 val_loss  0.5 val_accuracy  3 min 01 s' runs list "$folder/runs"
expect 0 'second  running   MirroredStrategy  2         0       7' runs list "$folder/runs"
expect 0 '"state":"finished","strategy":"MirroredStrategy","workers":1,"replicas":2,"epochs":3,"steps":30' \
  runs list --json "$folder/runs"
(cd "$folder" && expect 0 'first' runs list)

# A process that is gone, and one that has its number by chance: it began later.
sleep 0 &
gone=$!
wait "$gone"
make_run third running "$gone" 0.1 "$now"
expect 0 '"state":"lost"' runs show --json "$folder/runs/third"
make_run fourth running 1 0.1 2000-01-01T00:00:00Z
expect 0 '"state":"lost"' runs show --json "$folder/runs/fourth"
rm -r "$folder/runs/third" "$folder/runs/fourth"

expect 0 'configuration.optimizer.lr  0.1' runs show "$folder/runs/first"
expect 0 'last epoch.loss             0.5' runs show "$folder/runs/first"

expect 0 '{"what":"configuration.optimizer.lr","values":[0.1,0.25]}' runs compare --json "$folder/runs/first" "$folder/runs/second"
expect 0 '{"what":"final.val_loss","values":[1.75,null]}' runs compare --json "$folder/runs"
[[ $(runs compare --json "$folder/runs") != *configuration.batch* ]] || fail "what is equal must not be shown"
expect 0 'configuration.optimizer.lr  0.1' runs compare "$folder/runs"

# Attempts: the newest one says whether the process is gone. Text of files cannot control the terminal.
make_run fifth running 1 0.1 2000-01-01T00:00:00Z
sed -i 's/^{/{"attempts": [{"from_step": 0, "state": "lost", "pid": 1}, {"from_step": 8, "state": "running", "started": "'"$now"'",'\
' "host": "'"$(hostname)"'", "pid": '$$', "seed": 3}], /' "$folder/runs/fifth/run.json"
expect 0 '"state":"running"' runs show --json "$folder/runs/fifth"
expect 0 'from step 8, ' runs show "$folder/runs/fifth"
expect 0 'attempt 2.seed' runs show "$folder/runs/fifth"
printf '{"epoch": 0, "step": 1, "time": 1767225600, "a\\u001b[31m": 1}\n' >"$folder/runs/fifth/metrics.jsonl"
expect 0 '2026-01-01T00:00:00Z' runs show "$folder/runs/fifth"
[[ $(runs show "$folder/runs/fifth") != *$'\033'* ]] || fail "control characters must not reach the terminal"
mkdir -p "$folder/runs/deep/er" && mv "$folder/runs/fifth" "$folder/runs/deep/er"
expect 0 'deep/er/fifth' runs list "$folder/runs" "$folder/runs/deep"
[[ $(runs list "$folder/runs" "$folder/runs/../runs" | grep -c fifth) == 1 ]] || fail "one folder by two names is one run"
rm -r "$folder/runs/deep"

expect 1 'no run.json' runs show "$folder"
expect 1 'there is no such folder' runs list "$folder/none"
mkdir "$folder/empty"
expect 1 'there is no run folder below' runs list "$folder/empty"
sed -i 's/"format": 1/"format": 2/' "$folder/runs/second/run.json"
expect 1 'format=2' runs show "$folder/runs/second"
expect 0 'format=2' runs list "$folder/runs"
expect 0 'first' runs list "$folder/runs"
sed -i 's/"format": 2, "name": "second"/"format": 1, "name": 5/' "$folder/runs/second/run.json"
expect 0 'folder='"$folder/runs/second" runs list "$folder/runs"
expect 0 'finished' runs list "$folder/runs"
expect 0 'configuration.batch' runs show "$folder/runs/first"
expect 1 'member=name, value=5' runs show "$folder/runs/second"
expect 0 'final.val_loss' runs compare "$folder/runs"
expect 1 'subcommand' runs
echo ok
