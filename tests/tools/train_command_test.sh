#!/usr/bin/env bash
# Trainings by the command alone: data of each kind, each strategy, configuration files, resume, eval, predict, export.
#   train_command_test.sh LOCKSTEP REPOSITORY
set -euo pipefail
# shellcheck source=tests/support/expect.sh
source "$(dirname "$0")/../support/expect.sh"

lockstep=$1
repository=$2
digits=$repository/examples/data/digits.csv
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

number() { # number NAME of a JSON line
  sed -E "s/.*\"$1\":(\"[^\"]*\"|[-0-9.e]+).*/\1/" <<<"$2"
}
above() { # above LIMIT VALUE WHAT
  awk -v limit="$1" -v value="$2" 'BEGIN { exit !(value > limit) }' || fail "$3: $2 must be above $1"
}

# One command, as in the README.
result=$("$lockstep" train --model mlp --data "$digits" --target label --epochs 8 --validation 0.2 --folder one --quiet --json)
above 0.9 "$(number val_accuracy "$result")" "accuracy of the digits"
for file in plan.json run.json metrics.jsonl model.safetensors checkpoints; do
  [[ -e one/$file ]] || fail "the run folder must have $file"
done

# eval says what the last validation said; predict gives the same accuracy.
head -n 401 "$digits" >part.csv
"$lockstep" train --model mlp --data "$digits" --epochs 2 --validation part.csv --folder two --quiet --json >two.json
evaluated=$("$lockstep" eval two --data part.csv --json)
[[ $(number accuracy "$evaluated") == "$(number val_accuracy "$(cat two.json)")" ]] || fail "eval must equal the last validation: $evaluated, $(cat two.json)"
[[ $(number loss "$evaluated") == "$(number val_loss "$(cat two.json)")" ]] || fail "the loss of eval must equal that of the last validation"
"$lockstep" predict two --data part.csv -o out.csv --replicas 2 >log
accuracy=$(paste -d, <(tail -n +2 part.csv | sed 's/.*,//') <(tail -n +2 out.csv) | awk -F, '{ right += $1 == $2 } END { printf "%.4f", right / NR }')
[[ $accuracy == "$(printf '%.4f' "$(number accuracy "$evaluated")")" ]] || fail "predict must be as accurate as eval: $accuracy, $evaluated"
cut -d, -f1-64 part.csv >inputs.csv # without the target
"$lockstep" predict two --data inputs.csv -o out.npz >log
[[ $(find . -name '.lockstep-*') == "" ]] || fail "predict must leave no other files"
expect_text 'output: float32 [400, 10]' "$lockstep" data inspect out.npz

# A training that is continued has the numbers of one that was not interrupted.
flags=(--model mlp --data "$digits" --validation 0.2 --hidden 32 --seed 3 --quiet --json)
"$lockstep" train "${flags[@]}" --epochs 4 --folder whole >whole.json
"$lockstep" train "${flags[@]}" --epochs 2 --folder halves >log
"$lockstep" train --folder halves --resume --epochs 4 --quiet --json >halves.json
for name in loss accuracy val_loss val_accuracy; do
  [[ $(number $name "$(cat whole.json)") == "$(number $name "$(cat halves.json)")" ]] || fail "resume must give the same $name: $(cat whole.json) $(cat halves.json)"
done
cmp whole/model.safetensors halves/model.safetensors || fail "resume must give the same parameters"
# Before its first checkpoint, too.
mkdir begun
cp whole/plan.json begun
"$lockstep" train --folder begun --resume --quiet --json >begun.json
cmp whole/model.safetensors begun/model.safetensors || fail "a run without a checkpoint must begin as it had begun: $(cat whole.json) $(cat begun.json)"
expect_text 'begun with another value: --lr' "$lockstep" train --folder halves --resume --lr 0.5
expect_text 'the folder has a run' "$lockstep" train "${flags[@]}" --folder halves
expect_text 'has no run' "$lockstep" train --folder nothing --resume

# One training at a time in a folder; after a kill it is free.
"$lockstep" train "${flags[@]}" --epochs 1000000 --folder alive >log 2>&1 &
alive=$!
for ((i = 0; i < 600; ++i)); do
  [[ ! -s alive/metrics.jsonl ]] || break
  sleep 0.1
done
cp alive/plan.json alive.plan
expect_text "another training runs in the folder: folder=alive, process=$alive" "$lockstep" train --folder alive --resume \
  --epochs 2000000 --quiet
cmp alive/plan.json alive.plan || fail "a training that is refused must not change the plan"
kill -9 "$alive"
wait "$alive" || true
expect_text '"state":"lost"' "$lockstep" runs show --json alive
# A start that was lost before its first epoch does not block its folder.
mkdir lost
printf '{"format": 1, "state": "running", "host": "%s", "pid": %s, "started": "2026-01-01T00:00:00Z"}' "$(hostname)" "$alive" >lost/run.json
"$lockstep" train "${flags[@]}" --epochs 1 --folder lost >log

# What is there is not destroyed.
mkdir full
echo mine >full/notes
expect_text 'the folder is not empty: folder="full"' "$lockstep" train "${flags[@]}" --folder full
cp part.csv kept.csv
expect_text 'would replace the data' "$lockstep" predict two --data kept.csv -o ./kept.csv
cmp part.csv kept.csv || fail "predict must keep its data"
cp "$digits" digits.csv
"$lockstep" train --model mlp --data digits.csv --validation part.csv --epochs 1 --hidden 8 --folder kept --quiet >log
echo mine >note.csv
sum=$(cat digits.csv part.csv kept/plan.json out.csv note.csv | cksum)
for output in digits.csv part.csv ./kept/../digits.csv; do # those of the run, whatever --force says
  expect 1 'would replace the data or the model' "$lockstep" predict kept --data inputs.csv -o $output --force
done
expect 1 'the file exists: output="note.csv"; choose another file, or replace it with --force' "$lockstep" predict kept --data inputs.csv -o note.csv
mkdir folder.csv
expect 1 'a folder has the name of the output' "$lockstep" predict kept --data inputs.csv -o folder.csv --force
for name in model.safetensors model.pt; do
  expect 1 'would replace a file of a run' "$lockstep" export kept -o kept/$name --force
done
[[ $sum == "$(cat digits.csv part.csv kept/plan.json out.csv note.csv | cksum)" && ! -e kept/model.pt ]] || fail "outputs must replace nothing"
"$lockstep" predict kept --data inputs.csv -o note.csv --force >log
[[ $(wc -l <note.csv) == 401 ]] || fail "--force must replace the output"
"$lockstep" export kept -o kept.pt >log
expect 1 'the file exists' "$lockstep" export kept -o kept.pt
expect 1 'would replace the data or the model' "$lockstep" export kept.pt -o kept.pt --force

# A run that did not end is used with a warning.
sed -i 's/"state": "finished"/"state": "preempted"/' kept/run.json
expect 0 'warning: the run stopped at step 57 of 57: state=preempted; continue it with lockstep train --folder kept --resume' "$lockstep" eval kept --data part.csv
[[ $("$lockstep" eval kept --data part.csv --json 2>log) == '{'* ]] || fail "the warning must be on standard error"
expect 1 'none excludes other metrics' "$lockstep" eval two --data part.csv --metrics none,accuracy

# A dry run refuses what a start refuses, and writes nothing.
dry=(--model mlp --data part.csv --hidden 8 --dry-run)
touch file
while IFS='|' read -r text settings; do
  # shellcheck disable=SC2086 # words of a command
  expect 1 "$text" "$lockstep" train "${dry[@]}" $settings
done <<'CASES'
GPU:3|--devices GPU:3
the folder has a run|--folder kept
the folder cannot be made|--folder file/run
--lr must be finite: value=inf|--lr inf
--label-smoothing must be below 1: value=5|--label-smoothing 5
clip_norm|--clip-norm 0
--ema must be below 1: value=3|--ema 3
--momentum must be below 1: value=7|--optimizer sgd --momentum 7
--patience must be at least 1|--patience 0 --validation 0.5
a metric is given twice: --metrics=accuracy and accuracy|--metrics accuracy,accuracy
none excludes other metrics: --metrics=none and accuracy|--metrics none,accuracy
the warm-up must end before the training: --warm-up=26, updates=26|--warm-up 26 --epochs 2
CASES
plan=$("$lockstep" train "${dry[@]}" --ema 0.9)
for text in 'folder: runs/mlp-TIME (TIME is that of the start)' 'activations_of_a_replica: ' 'moving_average: 2.4 KiB' ': it fits'; do
  [[ $plan == *"$text"* ]] || fail "the plan must have '$text': $plan"
done
[[ ! -e runs ]] || fail "a dry run must write nothing"

# Strategies give the same curve.
for strategy in "one_device" "mirrored --replicas 2" "central --replicas 2"; do
  # shellcheck disable=SC2086
  result=$("$lockstep" train "${flags[@]}" --epochs 1 --strategy $strategy --folder "by_${strategy%% *}")
  loss=$(printf '%.4f' "$(number val_loss "$result")")
  [[ ${first:=$loss} == "$loss" ]] || fail "$strategy must give the loss of one_device: $loss, $first"
done
"$lockstep" run -n 2 -- "$lockstep" train "${flags[@]}" --epochs 1 >workers.log 2>&1 || fail "two workers: $(cat workers.log)"
[[ $(printf '%.4f' "$(number val_loss "$(grep -o '{.*}' workers.log)")") == "$first" ]] || fail "two workers must give the loss of one: $(cat workers.log)"
runs=(runs/*)
[[ ${#runs[@]} == 1 && -f ${runs[0]}/model.safetensors ]] || fail "one worker must write the folder of the run: ${runs[*]}"

# Settings of a file; flags win.
cat >train.toml <<TOML
model = "cnn"
data = ["$digits"]
input_shape = "1x8x8"
hidden = [8, 8]
epochs = 7
validation = 0.25
TOML
cat >train.json <<JSON
{"model": "cnn", "data": ["$digits"], "input_shape": "1x8x8", "hidden": [8, 8], "epochs": 7, "validation": 0.25}
JSON
config=train.toml
plan=$("$lockstep" train --config $config --epochs 1 --replicas 2 --dry-run --folder dry 2>&1) || true
if [[ $plan == *'need toml++'* ]]; then # a build without it
  config=train.json
  plan=$("$lockstep" train --config $config --epochs 1 --replicas 2 --dry-run --folder dry)
fi
for text in 'epochs: 1' 'batch_of_a_replica: 16' 'validation_examples: 449' 'devices: ["CPU:0","CPU:1"]' 'gradients_of_a_replica' 'folder: dry'; do
  [[ $plan == *"$text"* ]] || fail "the plan must have '$text': $plan"
done
[[ ! -e dry ]] || fail "a dry run must write nothing"
"$lockstep" train --config $config --epochs 2 --folder cnn --quiet --ema 0.9 --clip-norm 1 --schedule cosine --warm-up 5 --optimizer adamw >log
for keys in '"batch_size": 3, "batch-size": 4' '"epochs": 3, "epochs": 4'; do
  echo "{$keys}" >wrong.json
  expect 1 'a key is given twice' "$lockstep" train --config wrong.json
done
echo '{"model": "mlp", "data": "'"$digits"'", "epoch": 3}' >wrong.json
expect_text 'key=epoch; did you mean epochs?' "$lockstep" train --config wrong.json
if [[ $config == train.toml ]]; then
  echo 'epochs = "many"' >wrong.toml
  expect_text 'epochs of file="wrong.toml" must be a number' "$lockstep" train --config wrong.toml
  echo 'epochs = ' >wrong.toml
  expect_text 'line=1' "$lockstep" train --config wrong.toml
fi

# Wrong flags and values.
expect_text '--epoch is unknown; did you mean --epochs?' "$lockstep" train --epoch 3
expect_text '--jsn is unknown; did you mean --json?' "$lockstep" data inspect --jsn x
expect_text 'trian is no subcommand; did you mean train?' "$lockstep" trian
expect 1 'value=adan; did you mean adam?' "$lockstep" train --optimizer adan
expect 1 '[lockstep train] --strategy must be one_device, mirrored, multi_worker, central or tpu: value=mirored; did you mean mirrored?' "$lockstep" train --strategy mirored
expect 1 'did you mean cross_entropy?' "$lockstep" train --loss=crossentropy
expect 1 'value=acuracy; did you mean accuracy?' "$lockstep" train --metrics mse,acuracy
expect 1 'did you mean bash?' "$lockstep" completion bsh
expect 1 '-model is unknown; did you mean --model?' "$lockstep" train -model mlp
expect 1 '-output is unknown; did you mean --output?' "$lockstep" predict two -output x.csv
expect_text '--epochs must be an integer: value=x' "$lockstep" train --epochs x
expect_text '--data is missing' "$lockstep" train --model mlp
expect_text 'mlp, cnn, resnet, gpt or a file of TorchScript: model=mpl; did you mean mlp?' "$lockstep" train --model mpl --data "$digits"
expect_text 'give --input-shape' "$lockstep" train --model resnet --data "$digits"
expect_text '--momentum is for the optimizer sgd' "$lockstep" train --model mlp --data "$digits" --momentum 0.5
expect_text 'did you mean label?' "$lockstep" train --model mlp --data "$digits" --target lable

# Each kind of data, each model; what is exported is read back.
if "$lockstep" data write digits.tfrecord --from "$digits" --header >log 2>&1 &&
  "$lockstep" train --model mlp --data digits.tfrecord --epochs 1 --folder records --quiet --validation 0.1 >log 2>&1; then
  "$lockstep" eval records --data digits.tfrecord --json >records.json
  above 0.6 "$(number accuracy "$(cat records.json)")" "accuracy with records"
elif ! grep -q 'built without protozero' log; then
  fail "records: $(cat log)"
fi
"$lockstep" export cnn -o cnn.pt >log
"$lockstep" export cnn -o cnn.safetensors >log
for model in cnn.pt cnn.safetensors; do
  [[ $("$lockstep" eval $model --data "$digits" --json) == "$("$lockstep" eval cnn --data "$digits" --json)" ]] || fail "$model must be as good as the run"
done
# A start that fails in its first step does not block its folder.
if "$lockstep" train --model cnn.pt --data "$digits" --epochs 1 --folder tuned --quiet >log 2>&1; then fail "a model for images must not take rows"; fi
[[ ! -e tuned/plan.json && ! -e tuned/model.pt ]] || fail "a failed start must leave no plan: $(ls tuned)"
"$lockstep" train --model cnn.pt --data "$digits" --input-shape 1x8x8 --epochs 1 --folder tuned --quiet --replicas 2 >log
above "$(number accuracy "$("$lockstep" eval cnn --data "$digits" --json)")" "$(number accuracy "$("$lockstep" eval tuned --data "$digits" --json)")" "accuracy of a TorchScript model that was trained further"
"$lockstep" export tuned -o tuned.pt >log
[[ $("$lockstep" eval tuned.pt --data "$digits" --json) == "$("$lockstep" eval tuned --data "$digits" --json)" ]] || fail "tuned.pt must be as good as the run"
"$lockstep" predict tuned --data "$digits" -o tuned.npz >log
"$lockstep" train --model gpt --data "$repository/docs/glossary.md" --epochs 1 --length 32 --width 32 --folder gpt --quiet --metrics perplexity >log
"$lockstep" export gpt -o gpt.pt >log
[[ $("$lockstep" eval gpt.pt --data "$repository/docs/glossary.md" --json) == "$("$lockstep" eval gpt --data "$repository/docs/glossary.md" --json)" ]] || fail "gpt.pt must be as good as the run"
"$lockstep" predict gpt --data "$repository/docs/glossary.md" -o next.csv >log
printf 'x,z,y\n1,2,0.5\n2,1,1.5\n3,5,2.5\n4,4,3.5\n' >numbers.csv
expect_text 'val_r2' "$lockstep" train --model mlp --data numbers.csv --epochs 2 --folder numbers --metrics mae,r2 --validation numbers.csv --quiet
"$lockstep" predict numbers --data numbers.csv -o numbers_out.csv >log
[[ $(wc -l <numbers_out.csv) == 5 ]] || fail "predict must write a row for each example"
(cd one && "$lockstep" train --folder ../numbers --resume --epochs 3 --quiet >../log) || fail "a run must find its data from another folder"
mkdir moved
mv numbers.csv moved
expect_text 'there is no such file' "$lockstep" train --folder numbers --resume --epochs 4
"$lockstep" train --folder numbers --resume --epochs 4 --data moved/numbers.csv --validation moved/numbers.csv --quiet >log
sed 's/0\.5/0.6/' moved/numbers.csv >numbers.csv
expect_text 'the data have changed since the run began' "$lockstep" train --folder numbers --resume --epochs 5 --data numbers.csv
mv moved/numbers.csv .
expect_text 'validation_examples: 8' "$lockstep" train --model mlp --data numbers.csv --validation numbers.csv,numbers.csv --dry-run
printf '\xef\xbb\xbfx,kind\n1,cat\n2, dog\n3,cat \n4,dog\n' >texts.csv # spaces around targets do not count, nor does a mark before UTF-8
"$lockstep" train --model mlp --data texts.csv --target kind --epochs 1 --folder texts --quiet >log
"$lockstep" predict texts --data texts.csv -o texts_out.csv >log
grep -qE '^(cat|dog),' texts_out.csv || fail "classes must have their names: $(cat texts_out.csv)"
grep -q '"classes": 2,' texts/plan.json || fail "there are two classes: $(cat texts/plan.json)"
printf 'x,y\n1,0\n2,\n' >empty.csv
expect_text 'a row has no target: file="empty.csv", line=3, column=y' "$lockstep" train --model mlp --data empty.csv
printf 'x,y\n1,0\n2,1\n3,O\n' >mixed.csv
expect_text 'row=3, text="O"' "$lockstep" train --model mlp --data mixed.csv
printf 'x,y\n1,0\nnan,1\n' >infinite.csv
expect_text 'line=3, column=x, text="nan"' "$lockstep" train --model mlp --data infinite.csv
printf 'x,y\n1e-50,0\n2,1\n\n' >small.csv
"$lockstep" train --model mlp --data small.csv --epochs 1 --folder small --quiet >log
printf 'x,y\n1,1\n2,2\n3,3\n4,5A\n' >codes.csv
expect_text 'row=4, text="5A"' "$lockstep" train --model mlp --data codes.csv
expect_text '"1","2","3","5A"' "$lockstep" train --model mlp --data codes.csv --loss cross_entropy --dry-run
expect_text 'row=1, text="cat"' "$lockstep" train --model mlp --data texts.csv --target kind --loss binary_cross_entropy

# Headers and files that are not what they should be.
printf '5.1,3.5,0\n4.9,3.0,1\n' >rows.csv
expect_text 'the first line must have the names of the columns: file="rows.csv", name=5.1' "$lockstep" train --model mlp --data rows.csv --target 0
printf ',x,y\n0,1,0\n1,2,1\n' >index.csv
expect_text 'a column has no name: file="index.csv", column=0' "$lockstep" train --model mlp --data index.csv
"$lockstep" train --model mlp --data index.csv --features x --epochs 1 --folder index --quiet >log
printf 'x,z,label\n1,2,0.5\n' >other.csv
expect_text 'all CSV files must have the columns of the first one: file="other.csv", column=2, name=label' "$lockstep" train --model mlp --data numbers.csv,other.csv
cp "$repository/tests/fixtures/numpy/pair.npz" arrays.npz
expect_text 'file="arrays.npz", kind=npz, kind of "numbers.csv"=csv' "$lockstep" train --model mlp --data numbers.csv,arrays.npz
cp numbers.csv NUMBERS.CSV
expect_text 'kind: csv' "$lockstep" train --model mlp --data NUMBERS.CSV --dry-run
tr , '\t' <numbers.csv >numbers.tsv
expect_text 'a table must be a .csv file with commas' "$lockstep" train --model mlp --data numbers.tsv
printf '\xff\xfex\0,\0y\0\n\0' >wide.csv
expect_text 'found=UTF-16' "$lockstep" train --model mlp --data wide.csv
gzip -c "$repository/docs/glossary.md" >book.txt.gz
expect_text 'text must not be compressed' "$lockstep" train --model gpt --data book.txt.gz

# Data in the order of their classes are mixed as a whole: nothing can be learnt here but the number of each class.
awk 'BEGIN { print "x,y"; for (i = 0; i < 24000; ++i) print i % 2 "," (i >= 12000) }' >sorted.csv
for shuffle in 1 0; do
  "$lockstep" train --model mlp --hidden 4 --data sorted.csv --optimizer sgd --lr 0.2 --batch-size 200 --epochs 1 --shuffle $shuffle --folder "sorted$shuffle" --quiet >log
done
sorted=$(number loss "$("$lockstep" eval sorted1 --data sorted.csv --json)")
above "$sorted" 0.72 "loss of sorted data"
above 0.8 "$(number loss "$("$lockstep" eval sorted0 --data sorted.csv --json)")" "loss of sorted data without --shuffle"

# Numbers that are large against their differences: float32 has no 1700000001.
awk 'BEGIN { print "time,y"; for (i = 0; i < 64; ++i) print 1700000000 + i % 2 "," i % 2 }' >times.csv
result=$("$lockstep" train --model mlp --hidden 8 --data times.csv --epochs 20 --lr 0.05 --folder times --quiet --json)
above 0.99 "$(number accuracy "$result")" "accuracy with times"
"$lockstep" export times -o times.pt >log
[[ $("$lockstep" eval times.pt --data times.csv --json) == "$("$lockstep" eval times --data times.csv --json)" ]] || fail "times.pt must be as good as the run"
if grep -q lockstep.plan times.pt && grep -q "$folder" times.pt; then fail "an exported model must not have paths of this machine"; fi
if [[ -e records/plan.json ]]; then
  "$lockstep" data write times.tfrecord --from times.csv --header >log
  result=$("$lockstep" train --model mlp --hidden 8 --data times.tfrecord --target y --epochs 20 --lr 0.05 --shuffle 32 --folder time_records --quiet --json 2>warnings)
  above 0.99 "$(number accuracy "$result")" "accuracy with times in records"
  grep -q 'mixed with those near them only: --shuffle=32, records=64' warnings || fail "a small buffer must be warned of: $(cat warnings)"
fi
expect_text 'float32 rounds away: inputs=time' "$lockstep" train --model mlp --data times.csv --normalize none --dry-run

# A model that was exported knows what it takes.
expect_text 'the model takes examples of another shape: model="times.pt", shape=[1], shape of the data=[2]' "$lockstep" train --model times.pt --data numbers.csv --loss mse
expect_text 'the model takes inputs of the shape [rows, 1]' "$lockstep" estimate --model times.pt --input-shape 2 --classes 2 --device cpu
expect_text 'the model must have an output for each class of the data: outputs=2, classes=10' "$lockstep" estimate --model times.pt --input-shape 1 --classes 10 --device cpu
expect_text 'the model was made for other targets' "$lockstep" train --model times.pt --data numbers.csv --features x --loss mse

# Memory before a training: exact for parameters, moments and gradients; replicas on CPUs share the moments.
estimated=$("$lockstep" estimate --model mlp --input-shape 64 --hidden 128 --batch-size 64 --replicas 2 --device cpu --json)
[[ $estimated == *'"num_parameters":9610,"rows":32,'*'"optimizer_state":76880,'*'"parameters":76880,"buffers":0,"optimizer_state":76880,'*'"fits":true'* ]] || fail "estimate of mlp: $estimated"
for model in 'cnn --input-shape 1x8x8' 'resnet --strategy central --replicas 2' 'gpt --input-shape 16 --classes 50 --optimizer sgd' \
  'gpt.pt --input-shape 16 --classes 50 --tokens' 'mlp --workers 2 --one-machine' 'mlp --strategy tpu --replicas 4'; do
  # shellcheck disable=SC2086 # words of a command
  expect_text ' needs ' "$lockstep" estimate --device cpu --model $model
done
if "$lockstep" estimate --model mlp --hidden 1000 --batch-size 1000000000000 --device cpu >log; then fail "the exit status must be 1"; fi
expect_text 'it does not fit' "$lockstep" estimate --model mlp --hidden 1000 --batch-size 1000000000000 --device cpu
divided=$("$lockstep" estimate --model mlp --input-shape 64 --hidden 128 --workers 2 --shard state --device cpu --json)
[[ $divided == *'"buffers":0,"optimizer_state":38440,'* ]] || fail "estimate of divided state: $divided"
expect_text '[estimate] --shard is for several replicas on GPUs' "$lockstep" estimate --model mlp --replicas 2 --shard state --device cpu
expect_text '[estimate] a TorchScript model needs --input-shape' "$lockstep" estimate --model gpt.pt
expect_text '[estimate] cnn learns images' "$lockstep" estimate --model cnn --input-shape 64
expect_text '[estimate_memory] one_device has one replica: replicas=2' "$lockstep" estimate --model mlp --strategy one_device --replicas 2

# The largest numbers do not overflow, and a model that is too large is not made.
for words in '--model mlp --batch-size 1099511627776' '--model mlp --hidden 1000000,1000000,1000000' \
  '--model gpt --width 1000000 --layers 1000' '--model cnn --hidden 1000000,1000000' '--model resnet --hidden 1000000' \
  '--model resnet --input-shape 3x100000000x100000000'; do
  # shellcheck disable=SC2086
  if "$lockstep" estimate --device cpu $words >log 2>&1; then fail "estimate must fail: $words"; fi
  grep -q 'it does not fit' log || fail "estimate $words must say that it does not fit: $(cat log)"
done
result=$("$lockstep" estimate --device cpu --model mlp --hidden 10000000,10000000 --json) && fail "the exit status must be 1"
[[ $result == *'"measured_rows":0,'*'"activations":null,'*' needs at least '* ]] || fail "estimate of what is known: $result"
for model in 'mlp --hidden 7' 'cnn --hidden 5,6,7,8 --input-shape 2x9x17' 'resnet --hidden 8,8,4' 'gpt --width 24 --heads 3 --layers 3'; do
  # shellcheck disable=SC2086
  "$lockstep" estimate --device cpu --batch-size 4 --model $model >log || fail "estimate --model $model: $(cat log)"
done

# Settings that change nothing are refused.
for words in 'mlp --width 99' 'mlp --layers 7' 'cnn --heads 2' 'gpt --hidden 5' 'mlp --tokens' 'gpt --tokens' 'mlp --one-machine' \
  'mlp --strategy tpu --one-machine'; do
  # shellcheck disable=SC2086
  expect_text 'leave it out' "$lockstep" estimate --model $words
done

# Of `lockstep doctor`, too.
expect_text '--watch needs a JOB that runs, and there is none' "$lockstep" doctor --watch 1
expect_text '--watch needs a JOB that runs, and there are FILEs' "$lockstep" doctor --watch 1 one/collectives.jsonl
mkdir ended
cp one/collectives.jsonl ended/lockstep-worker0-1.json
expect_text '--watch needs a JOB that runs, and there are only files' "$lockstep" doctor --watch 1 ended
expect_text '--cluster, --xla and --topology ask no job: JOB=1' "$lockstep" doctor --cluster 1
expect_text '[doctor] no such process on this machine: JOB=99999999999' "$lockstep" doctor 99999999999

# A program that ignores SIGUSR1 is told what it does not get.
mkdir dumps
(
  trap '' USR1
  LOCKSTEP_DUMP=dumps "$lockstep" train --model mlp --data "$digits" --target label --epochs 1 --quiet --folder ignores
) >log 2>&1 || fail "a training that ignores SIGUSR1: $(cat log)"
grep -q 'SIGUSR1 writes no file into LOCKSTEP_DUMP: this program ignores this signal' log || fail "what SIGUSR1 does must be said: $(cat log)"
expect_text 'loss' "$lockstep" train --model mlp --data "$repository/tests/fixtures/numpy/pair.npz" --epochs 1 --folder arrays --quiet
mkdir -p images/rows images/columns
base64 -d >images/rows/1.png <<<iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAAAAADhZOFXAAAAEUlEQVR42mNggIH/UMBAlggA7IUf4SSviB4AAAAASUVORK5CYII=
base64 -d >images/columns/1.png <<<iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAAAAADhZOFXAAAADklEQVR42mNg+A+FlDEAbBQf4alpY3AAAAAASUVORK5CYII=
if result=$("$lockstep" train --model resnet --hidden 4 --data images --epochs 30 --lr 0.01 --folder stripes --quiet --json 2>log); then
  above 0.9 "$(number accuracy "$result")" "accuracy with two images"
  "$lockstep" export stripes -o stripes.pt >log
  "$lockstep" predict stripes.pt --data images -o stripes.csv >log
  [[ $(cut -d, -f1 stripes.csv | tr '\n' ' ') == "class columns rows " ]] || fail "images must have their classes: $(cat stripes.csv)"
  expect_text 'normalize: none' "$lockstep" train --model stripes.pt --data images --dry-run # it scales them itself
  mkdir -p flat colours/gray colours/red
  cp images/rows/1.png flat/b.png
  cp images/columns/1.png flat/a.png
  "$lockstep" predict stripes --data flat -o flat.csv >log # without folders of classes
  [[ $(cut -d, -f1,3 flat.csv | tr '\n' ' ') == "class,file columns,a.png rows,b.png " ]] || fail "predictions must name their images: $(cat flat.csv)"
  expect_text 'images must be in a folder for each class: folder="flat"' "$lockstep" eval stripes --data flat
  cp images/rows/1.png colours/gray
  base64 -d >colours/red/1.png <<<iVBORw0KGgoAAAANSUhEUgAAAAgAAAAICAIAAABLbSncAAAAEUlEQVR42mP4z8CAFTEMLQkAKP8/wc53yE8AAAAASUVORK5CYII=
  expect_text 'input_shape: [3,8,8]' "$lockstep" train --model cnn --data colours --dry-run
  # The last one has another size.
  base64 -d >images/columns/2.png <<<iVBORw0KGgoAAAANSUhEUgAAAAwAAAAICAAAAADoj0EtAAAAD0lEQVR42mNg+I8EaccBAJ9HL9Edgfv+AAAAAElFTkSuQmCC
  expect_text 'scale them with --image-size 8x8' "$lockstep" train --model cnn --data images --epochs 1 --folder sizes --quiet
  "$lockstep" predict stripes --data images -o stripes.csv --force >log # scaled to the size of the training
  "$lockstep" train --model cnn --data images --epochs 1 --image-size 6x6 --folder scaled --quiet >log
elif ! grep -q 'built without libpng' log; then
  fail "images: $(cat log)"
fi
if compgen -G "$repository/build/pjrt/*.so" >log; then
  plan=$(LOCKSTEP_XLA_CPU_DEVICES=2 "$lockstep" train --model mlp --data numbers.csv --batch-size 4 --strategy tpu --dry-run)
  [[ $plan == *'device:TPU:1'*'batch_of_a_replica: 2'* ]] || fail "the plan must have the devices of the plugin: $plan"
  export LOCKSTEP_XLA_CPU_DEVICES=4
  expect 1 'the plugin has another number of devices: devices=4, replicas=3' "$lockstep" train --model mlp --data numbers.csv --strategy tpu --replicas 3 --dry-run
  LOCKSTEP_XLA_CPU_DEVICES=2 "$lockstep" train --model mlp --data numbers.csv --epochs 2 --batch-size 4 --strategy tpu --folder tpu --quiet --json >tpu.json
  "$lockstep" train --model mlp --data numbers.csv --epochs 2 --batch-size 4 --folder cpu --quiet --json >cpu.json
  [[ $(printf '%.4f' "$(number loss "$(cat tpu.json)")") == "$(printf '%.4f' "$(number loss "$(cat cpu.json)")")" ]] || fail "tpu must give the loss of one_device: $(cat tpu.json) $(cat cpu.json)"
fi

echo "train command: passed"
