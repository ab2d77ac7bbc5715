#!/usr/bin/env bash
# `lockstep trace`: it replaces only files, refuses files of several jobs, and names what is missing or damaged.
#   trace_command_test.sh LOCKSTEP
set -euo pipefail
# shellcheck source=tests/support/expect.sh
source "$(dirname "$0")/../support/expect.sh"

lockstep=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
traces=$folder/traces
mkdir "$traces"

write_trace() { # write_trace NAME WORKER WORKERS JOB [LINE...]
  {
    echo '['
    printf '{"name":"process_name","ph":"M","pid":%s,"tid":0,"args":{"name":"worker","job":"%s","workers":%s}},\n' \
      "$2" "$4" "$3"
    printf '%s,\n' "${@:5}"
    printf '{"name":"run","ph":"X","ts":1.000,"dur":2.000,"pid":%s,"tid":0,"args":{"step":7}}\n' "$2"
  } >"$traces/$1.json"
}

write_trace trace_worker0 0 4 a '{"name":"x","ph":5}' '{"name":"x","ph":"X","args":{"step":"x"}}' '{"ph":"X","args":[1]}'
write_trace trace_worker2 2 4 a
expect 0 '"events":4,"first_step":7,"last_step":7,"missing_workers":[1,3],"damaged_lines":3,"damaged_files":["'"$traces"'/trace_worker0.json"]}' \
  "$lockstep" trace "$traces" --json -o "$folder/out.json"
expect 0 'events 4' "$lockstep" trace "$traces" -o "$folder/out.json"
[[ $(grep -c '"ph"' "$folder/out.json") == 4 ]] || fail "the merged file must hold 4 events"

: >"$traces/trace_worker1.json"
expect 0 'missing_workers [1,3]' "$lockstep" trace "$traces" -o "$folder/out.json"
rm "$traces/trace_worker1.json"

# What is no regular file stays, and so does what is read.
mkdir "$folder/results"
echo kept >"$folder/results/file"
mkfifo "$folder/pipe"
ln -s out.json "$folder/link"
for output in "$folder/results" "$traces" "$folder/pipe" "$folder/link" /dev/null; do
  expect 1 'only a .json file is replaced' "$lockstep" trace "$traces" -o "$output"
done
[[ $(cat "$folder/results/file") == kept && -p $folder/pipe && -L $folder/link && -c /dev/null ]] || fail "outputs must stay"
expect 1 'must not replace what it reads' "$lockstep" trace "$traces" -o "$traces/trace_worker0.json"
expect 1 'cannot write' "$lockstep" trace "$traces" -o "$folder/nothing/out.json"
[[ $(ls "$folder") == $'link\nout.json\npipe\nresults\ntraces' ]] || fail "nothing else must be there: $(ls "$folder")"

# Files of other runs.
write_trace trace_worker3 3 4 b
expect 1 "job a: $traces/trace_worker0.json, $traces/trace_worker2.json; job b: $traces/trace_worker3.json" \
  "$lockstep" trace "$traces" -o "$folder/out.json"
rm "$traces/trace_worker3.json"
write_trace trace_worker0-17 0 4 a
expect 1 'a worker must have one file: worker=0' "$lockstep" trace "$traces" -o "$folder/out.json"
echo "trace command: passed"
