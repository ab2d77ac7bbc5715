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
expect_text "another training runs in the folder: folder=alive, process=$alive" "$lockstep" train --folder alive --resume --quiet
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
expect_text 'would replace the model of a run' "$lockstep" export two -o two/model.safetensors
expect_text 'would replace the model of a run' "$lockstep" export two -o two/model.pt

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
expect_text 'adam' "$lockstep" train --optimizer adan
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
expect_text '[estimate] a TorchScript model needs --input-shape' "$lockstep" estimate --model gpt.pt
expect_text '[estimate] cnn learns images' "$lockstep" estimate --model cnn --input-shape 64
expect_text '[estimate_memory] one_device has one replica: replicas=2' "$lockstep" estimate --model mlp --strategy one_device --replicas 2
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
  # The last one has another size.
  base64 -d >images/columns/2.png <<<iVBORw0KGgoAAAANSUhEUgAAAAwAAAAICAAAAADoj0EtAAAAD0lEQVR42mNg+I8EaccBAJ9HL9Edgfv+AAAAAElFTkSuQmCC
  expect_text 'scale them with --image-size 8x8' "$lockstep" train --model cnn --data images --epochs 1 --folder sizes --quiet
  "$lockstep" predict stripes --data images -o stripes.csv >log # scaled to the size of the training
  "$lockstep" train --model cnn --data images --epochs 1 --image-size 6x6 --folder scaled --quiet >log
elif ! grep -q 'built without libpng' log; then
  fail "images: $(cat log)"
fi
if compgen -G "$repository/build/pjrt/*.so" >log; then
  LOCKSTEP_XLA_CPU_DEVICES=2 "$lockstep" train --model mlp --data numbers.csv --epochs 2 --batch-size 4 --strategy tpu --folder tpu --quiet --json >tpu.json
  "$lockstep" train --model mlp --data numbers.csv --epochs 2 --batch-size 4 --folder cpu --quiet --json >cpu.json
  [[ $(printf '%.4f' "$(number loss "$(cat tpu.json)")") == "$(printf '%.4f' "$(number loss "$(cat cpu.json)")")" ]] || fail "tpu must give the loss of one_device: $(cat tpu.json) $(cat cpu.json)"
fi

# Completion and the manual page have all subcommands and flags.
"$lockstep" completion bash >completion.bash
bash -c '. ./completion.bash; COMP_WORDS=(lockstep train --opt); COMP_CWORD=2; _lockstep; [[ ${COMPREPLY[0]} == --optimizer ]]' || fail "bash must complete --optimizer"
bash -c '. ./completion.bash; COMP_WORDS=(lockstep train --loss hu); COMP_CWORD=3; _lockstep; [[ ${COMPREPLY[0]} == huber ]]' || fail "bash must complete huber"
bash -c '. ./completion.bash; COMP_WORDS=(lockstep data ins); COMP_CWORD=2; _lockstep; [[ ${COMPREPLY[0]} == inspect ]]' || fail "bash must complete inspect"
for shell in zsh fish; do
  "$lockstep" completion $shell >"completion.$shell"
  grep -q -- 'clip-norm' "completion.$shell" || fail "$shell must know --clip-norm"
done
for word in 'lockstep train' 'clip\\-norm' 'lockstep data inspect'; do
  "$lockstep" man >manual
  grep -q -- "$word" manual || fail "the manual page must have $word"
done
echo "train command: passed"
