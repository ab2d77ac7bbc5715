#!/usr/bin/env bash
# The launcher: what workers are told, how their lines come out, how failures end the job, and that nothing is left behind.
#   run_command_test.sh LOCKSTEP
# shellcheck disable=SC2016 # what stands in single quotes is for the workers
set -euo pipefail

lockstep=$1
folder=$(mktemp -d)
mark=300.$((10000 + RANDOM))$((10000 + RANDOM)) # seconds of this test's sleeps, with a digit for each case: they are found by it
touch "$folder/pids"
trap 'xargs -r kill <"$folder/pids" 2>/dev/null || true; rm -rf "$folder"' EXIT

fail() {
  echo "FAILED: $1" >&2
  [[ ! -s $folder/out ]] || { echo "-- standard output:" && head -c 2000 "$folder/out"; } >&2
  [[ ! -s $folder/err ]] || { echo "-- standard error:" && head -c 2000 "$folder/err"; } >&2
  exit 1
}
launch() { # launch STATUS ARGUMENTS...: runs the launcher, its output goes to out and err
  local expected=$1 status=0
  shift
  "$lockstep" run "$@" >"$folder/out" 2>"$folder/err" || status=$?
  [[ $status == "$expected" ]] || fail "'run $*' must exit with $expected, exited with $status"
}
prints() { grep -qF -- "$2" "$folder/$1" || fail "$1 must contain '$2'"; }
silent() { ! grep -qF -- "$2" "$folder/$1" || fail "$1 must not contain '$2'"; }
eventually() { # eventually WHAT COMMAND...
  local what=$1
  shift
  for _ in $(seq 600); do
    if "$@"; then return 0; fi
    sleep 0.05
  done
  fail "$what must happen within 30 s"
}
count_sleeps() { pgrep -c -f "^sleep $mark$1" || true; }
sleeps_are() { [[ $(count_sleeps "$1") == "$2" ]]; }
in_worker_1='[[ $TF_CONFIG == *"\"index\":1"* ]]'

# What workers are told.
launch 0 -n 2 -- bash -c 'echo "$TF_CONFIG"; echo "token=$LOCKSTEP_JOB_TOKEN restart=$LOCKSTEP_RESTART"'
for worker in 0 1; do
  grep -qE "^\[worker $worker\] \{\"cluster\":\{\"worker\":\[\"127.0.0.1:[0-9]+\",\"127.0.0.1:[0-9]+\"\]\},\"task\":\{\"type\":\"worker\",\"index\":$worker\}\}$" \
    "$folder/out" || fail "TF_CONFIG of worker $worker"
done
[[ $(grep -oE 'token=[0-9a-f]{32} restart=0' "$folder/out" | sort -u | wc -l) == 1 ]] || fail "all workers must have one secret"
[[ $(grep -o '"127.0.0.1:[0-9]*"' "$folder/out" | sort -u | wc -l) == 2 ]] || fail "all workers must have the same two addresses"
LOCKSTEP_JOB_TOKEN=mine launch 0 -n 1 -- bash -c 'echo "token=$LOCKSTEP_JOB_TOKEN"'
prints out 'token=mine'
echo secret >"$folder/token"
launch 0 -n 1 --token-file "$folder/token" -- bash -c 'echo "token=$LOCKSTEP_JOB_TOKEN file=$(cat "$LOCKSTEP_JOB_TOKEN_FILE")"'
prints out 'token= file=secret'
launch 0 -n 1 -- bash -c 'echo "$TF_CONFIG"'
port=$(grep -oE '127.0.0.1:[0-9]+' "$folder/out" | cut -d: -f2)
launch 0 -n 1 --port "$port" -- bash -c 'echo "$TF_CONFIG"'
prints out "\"127.0.0.1:$port\""
launch 1 -n 2 --port 65535 -- true
prints err '[run] the ports of all workers must lie between 1 and 65535: port=65535, workers=2'
launch 0 -n 1 -- bash -c 'printf "<%s>" "$@"; cat; echo' name -- '[1,2]' -n 'a b' '' data --help </dev/zero
prints out '[worker 0] <--><[1,2]><-n><a b><><data><--help>'

# Lines stay whole, and every byte arrives.
launch 0 -n 3 -- bash -c 'for i in $(seq 300); do printf "line $i "; printf "of this worker\nerror %s\n" $i >&2; echo end; done'
[[ $(wc -l <"$folder/out") == 900 ]] || fail "900 lines must come out"
[[ $(grep -cE '^\[worker [0-2]\] line [0-9]+ end$' "$folder/out") == 900 ]] || fail "lines of standard output must stay whole"
[[ $(grep -cE '^\[worker [0-2]\] (of this worker|error [0-9]+)$' "$folder/err") == 1800 ]] || fail "lines of standard error must stay whole"
launch 0 -n 2 -- bash -c 'printf "first\nlast without end"'
[[ $(grep -cE '^\[worker [01]\] last without end$' "$folder/out") == 2 ]] || fail "a last line without an end must be printed"
head -c 3000000 /dev/urandom >"$folder/bytes" && echo >>"$folder/bytes"
launch 0 -n 1 --no-prefix -- cat "$folder/bytes"
cmp "$folder/bytes" "$folder/out" || fail "bytes must arrive as they are"
launch 0 -n 2 -- cat "$folder/bytes"
grep -a '^\[worker 1\] ' "$folder/out" | sed 's/^\[worker 1\] //' | cmp - "$folder/bytes" || fail "bytes must arrive as they are behind prefixes"
launch 0 -n 1 -- bash -c 'head -c 1000000 /dev/zero | tr "\0" x; sleep 0.2; echo end'
[[ $(wc -l <"$folder/out") == 1 && $(wc -c <"$folder/out") == 1000015 ]] || fail "a long line must stay one"

# How jobs end.
launch 3 -n 2 --grace 0 --json -- bash -c "if $in_worker_1; then exit 3; fi; sleep ${mark}1"
prints err 'lockstep run: worker 1 failed with exit code 3 at '
prints err '{"workers":2,"restarts":0,"exit":3,"failed_worker":1,"failure":"exit code 3"}'
sleeps_are 1 0 || fail "the other worker must be stopped"
launch 139 -n 2 --grace 0 -- bash -c "if $in_worker_1; then ulimit -c 0; kill -SEGV \$\$; fi; sleep ${mark}1"
prints err 'worker 1 failed with signal SIGSEGV (Segmentation fault)'
launch 4 -n 2 --grace 20 -- bash -c "if $in_worker_1; then exit 4; fi; sleep 1; echo my own report"
prints out '[worker 0] my own report'
launch 5 -n 2 --grace 0 -- bash -c "if $in_worker_1; then sleep 0.5; exit 5; fi; trap 'echo asked to end; exit 1' TERM; while :; do sleep 0.05; done"
prints out '[worker 0] asked to end'
launch 6 -n 2 --grace 0 -- bash -c "if $in_worker_1; then sleep 0.5; exit 6; fi; trap '' TERM; while :; do sleep 0.05; done"

# What cannot start.
launch 1 -n 2 -- no_such_program_anywhere
prints err '[run] the program must be in a folder of PATH: program=no_such_program_anywhere'
launch 1 -n 2 -- "$folder/nothing"
prints err '[run] the program must exist'
launch 1 -n 2 -- "$folder/token"
prints err '[run] the program must be an executable file'
launch 1 -n 0 -- touch "$folder/started"
prints err '[run] there must be at least one worker: n=0'
launch 1 -n 1 --token-file "$folder/nothing" -- touch "$folder/started"
launch 1 -n 1
[[ ! -e $folder/started ]] || fail "nothing must be started with wrong options"

# Restarts.
launch 0 -n 2 --restarts 3 --grace 0 --json -- bash -c "echo attempt \$LOCKSTEP_RESTART; if $in_worker_1 && ((LOCKSTEP_RESTART < 2)); then exit 7; fi"
prints err 'lockstep run: restart 2 of 3'
prints err '"restarts":2,"exit":0,"failed_worker":null'
prints out '[worker 1] attempt 2'
silent out 'attempt 3'
launch 8 -n 1 --restarts 1 -- bash -c 'exit 8'
prints err 'lockstep run: restart 1 of 1'

launch 7 -n 1 --restarts 9 --restarts-without-progress 1 -- bash -c 'printf "\\0\\0\\0\\0\\0\\0\\0\\0\\3\\0\\0\\0\\0\\0\\0\\0" >"$LOCKSTEP_STEP_FILE"; exit 7'
prints err 'restart 1 of 9: all 1 workers start again, step 3 was the last one'
prints err 'the job goes on after step 0, 3 steps lost'
prints err 'the job ends: the last restart has finished no step'

# Workers that were preempted.
launch 75 -n 1 -- bash -c 'exit 75'
launch 0 -n 2 --restarts 1 --grace 0 --json -- bash -c 'exit $((LOCKSTEP_RESTART < 2 ? 75 : 0))'
prints err 'a restart after a preemption: all 2 workers start again, in 0.5 s'
prints err '"restarts":2,"exit":0'

# A folder in memory, which ends with the launcher.
launch 0 -n 2 -- bash -c 'test -d "$LOCKSTEP_MEMORY_FOLDER" && touch "$LOCKSTEP_MEMORY_FOLDER/file" && echo "folder=$LOCKSTEP_MEMORY_FOLDER"'
[[ ! -e $(sed -n 's/.*worker 0.*folder=//p' "$folder/out") ]] || fail "the folder in memory must be removed"
TMPDIR=/does/not/exist launch 0 -n 1 -- true
(
  trap '' XFSZ
  ulimit -f 0
  "$lockstep" run -n 2 -- bash -c 'echo "steps=<$LOCKSTEP_STEP_FILE>"' 2>&1
) | cat >"$folder/out"
[[ $(grep -c 'steps=<>$' "$folder/out") == 2 ]] || fail "workers must start where there is no room for a file of steps"
[[ $(grep -c 'steps of workers are not known' "$folder/out") == 1 ]] || fail "one warning about missing files of steps"

# Elastic jobs: what is refused, and what workers are told.
launch 1 -n 3:2 -- true
prints err '[run] the least number of workers must lie between 1 and the most: n=3:2'
launch 1 -n 2:x -- true
prints err '[run] the number of workers must be N or LEAST:MOST: n=2:x'
launch 1 -n 2 --listen 127.0.0.1:20001 -- true
prints err '[run] only elastic jobs can be joined'
LOCKSTEP_JOB_TOKEN=mine launch 1 -n 1:2 --listen 0.0.0.0:20001 -- true
prints err '[run] the launcher must listen at the address of this machine that others reach: listen=0.0.0.0:20001'
LOCKSTEP_JOB_TOKEN=mine launch 1 -n 1:2 --listen 203.0.113.7:20001 -- true
prints err 'the launcher must run where its address is'
launch 1 -n 2 --join 127.0.0.1:20001 -- true
prints err '[run] launchers of one job must have the same token'
LOCKSTEP_JOIN_TIMEOUT=0.5 LOCKSTEP_JOB_TOKEN=mine launch 1 -n 2 --join 127.0.0.1:1 -- true
prints err 'this launcher cannot reach the coordinator: address=127.0.0.1:1'
prints err 'start that with --listen there, or correct --join'
launch 0 -n 1:2 --json -- bash -c 'echo "views=$LOCKSTEP_VIEWS number=$LOCKSTEP_VIEW_WORKER config=$TF_CONFIG token=$LOCKSTEP_JOB_TOKEN"'
[[ $(grep -cE 'views=127.0.0.1:[0-9]+ number=[23] config= token=[0-9a-f]{32}$' "$folder/out") == 2 ]] || fail "what elastic workers are told"
prints err '"workers":2,"restarts":0,"exit":0,"failed_worker":null,"failure":null,"views":0}'
launch 3 -n 2:2 --restarts 1 -- bash -c 'exit 3'
prints err 'lockstep run: the job ends: '

# What workers started ends with them; strangers and processes with sessions of their own do not.
sleep "${mark}9" &
stranger=$!
echo "$stranger" >>"$folder/pids"
launch 0 -n 2 -- bash -c "sleep ${mark}2 & (sleep ${mark}2 & sleep ${mark}2) & set -m; sleep ${mark}2 & setsid bash -c 'echo \$\$ >>$folder/pids; exec sleep ${mark}8' & sleep 1"
sleeps_are 2 0 || fail "grandchildren must be gone"
sleeps_are 8 2 || fail "processes with sessions of their own must be left alone"
launch 0 -n 1 -- bash -c "(trap '' TERM; sleep ${mark}2 & while :; do sleep 0.05; done) & sleep 0.2"
sleeps_are 2 0 || fail "grandchildren that do not listen must be gone"

# Signals to the launcher. (Background commands ignore SIGINT unless told otherwise.)
start() {
  : >"$folder/out" # now, not when the launcher runs: what the last one has printed does not count
  : >"$folder/err"
  env --default-signal=INT "$lockstep" run "$@" >"$folder/out" 2>"$folder/err" &
  launcher=$!
}
ends_with() { # ends_with STATUS: the launcher of the last start
  local status=0
  wait "$launcher" || status=$?
  [[ $status == "$1" ]] || fail "the launcher must exit with $1, exited with $status"
}
listed() { [[ $(grep -c "$1" "$folder/out") == 2 ]]; }
for signal in INT TERM HUP; do
  start -n 2 --restarts 5 -- bash -c "trap 'echo got $signal; exit 9' $signal; echo ready; while :; do sleep 0.05; done"
  eventually "the workers' start" listed ready
  kill -$signal "$launcher"
  ends_with 9
  listed "got $signal" || fail "SIG$signal must be passed on"
done
start -n 1:1 --restarts 9 -- bash -c 'exit 7' # no worker runs while the next one waits for its start
eventually "a long wait" grep -q 'restart 4 of 9' "$folder/err"
kill -TERM "$launcher"
ends_with 7
LOCKSTEP_JOB_TOKEN=mine start -n 2 --join 127.0.0.1:1 -- true
sleep 0.5
kill -INT "$launcher"
ends_with 130
start -n 2 -- bash -c "trap 'sleep 0.3; echo saved; exit 75' TERM; echo ready; while :; do sleep 0.05; done"
eventually "the workers' start" listed ready
kill -TERM "$launcher" # who ends all processes of a job may send it twice
sleep 0.05
kill -TERM "$launcher"
ends_with 75
listed saved || fail "workers must have the time to save"
start -n 2 -- bash -c "trap '' INT; echo ready; sleep ${mark}3 & while :; do sleep 0.05; done"
eventually "the workers' start" listed ready
kill -INT "$launcher"
sleep 0.5
kill -0 "$launcher" || fail "one interrupt must not kill workers that go on"
kill -INT "$launcher"
ends_with 137
sleeps_are 3 0 || fail "a second interrupt must kill everything"
start -n 2 -- bash -c "sleep ${mark}4 & echo ready; sleep ${mark}4; echo after"
eventually "the workers' start" listed ready
sleeps_are 4 4 || eventually "the grandchildren's start" sleeps_are 4 4
kill -KILL "$launcher"
ends_with 137
eventually "the end of workers and grandchildren of a killed launcher" sleeps_are 4 0
# What a launcher leaves that was killed together with its watchdog is removed by the next one; what others use is not.
memory_of() { sed -n 's/.*folder=//p' "$folder/$1" | head -n 1; }
"$lockstep" run -n 1 -- bash -c "echo folder=\$LOCKSTEP_MEMORY_FOLDER; exec sleep ${mark}5" >"$folder/other" 2>&1 &
other=$!
echo "$other" >>"$folder/pids"
start -n 1 -- bash -c "echo folder=\$LOCKSTEP_MEMORY_FOLDER; exec sleep ${mark}5"
have_folders() { [[ -n $(memory_of out) && -n $(memory_of other) ]]; }
eventually "the workers' start" have_folders
kill -KILL "$(pgrep -P "$launcher" lockstep-watch)" "$launcher"
ends_with 137
[[ -d $(memory_of out) ]] || fail "nobody can have removed the folder"
cp "$folder/out" "$folder/left"
launch 0 -n 1 -- true
[[ ! -e $(dirname "$(memory_of left)") ]] || fail "the folder that was left must be removed"
[[ -d $(memory_of other) ]] || fail "a folder that is in use must stay"
kill -TERM "$other"
wait "$other" || true
kill -0 "$stranger" || fail "other processes must be left alone"
sleeps_are 8 2 || fail "processes with sessions of their own must be left alone"

# A reader that goes away ends the workers as it would without the launcher.
set +o pipefail
timeout 60 "$lockstep" run -n 2 --grace 0 -- yes 2>"$folder/err" | head -n 5 >"$folder/out"
[[ ${PIPESTATUS[0]} == 141 ]] || fail "writers must end by SIGPIPE when nobody reads"
set -o pipefail
echo "run command: passed"
