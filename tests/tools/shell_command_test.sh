#!/usr/bin/env bash
# Completion in bash, and in zsh and fish where they are; the manual page.
#   shell_command_test.sh LOCKSTEP
set -euo pipefail
# shellcheck source=tests/support/expect.sh
source "$(dirname "$0")/../support/expect.sh"

lockstep=$1
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
for shell in bash zsh fish; do
  "$lockstep" completion $shell >"completion.$shell"
done
mkdir data
touch data/numbers.csv data.toml

# completed WORD...: what bash offers for the last word, which may be empty; the words are those that readline makes.
completed() {
  (
    # shellcheck source=/dev/null
    source ./completion.bash
    COMP_WORDS=("$@")
    COMP_CWORD=$(($# - 1))
    _lockstep
    printf '%s ' "${COMPREPLY[@]}"
  )
}
offers() { # offers TEXT WORD...: all that is offered
  local text=$1 found
  shift
  found=$(completed lockstep "$@")
  [[ $found == "$text " ]] || fail "bash must complete '$*' to '$text': $found"
}
offers --optimizer train --opt
offers huber train --loss hu
offers inspect data ins
offers --json data inspect --js
offers 'data data.toml' train --data da
offers data.toml train --config data.t
offers data/numbers.csv train --data data/
offers data/numbers.csv,data.toml train --data data/numbers.csv,data.
offers mirrored train --strategy = mi
offers 'one_device mirrored multi_worker central tpu' train --strategy =
offers --strategy=mirrored train --strategy=mi
offers accuracy,perplexity train --metrics accuracy,p
offers mlp train --model ml
offers 'data data.toml' predict da
offers data.toml predict data -o data.t
offers 'bash zsh fish' completion ''
offers 'data data.toml' run -n 2 -- ./train da
[[ " $(completed lockstep run -n 2 -- 'bas') " == *' bash '* ]] || fail "bash must complete the program behind --"
[[ $(completed lockstep run -n 2 -- '') != *--workers* ]] || fail "flags behind -- are those of the program"
[[ $(completed lockstep train --model '') == 'mlp cnn resnet gpt '*'data.toml'* ]] || fail "models are names and files"
[[ $(completed lockstep train --data '') != *--* ]] || fail "a value is no flag"
[[ $(completed lockstep train '') == *'--model '* ]] || fail "flags must be offered"
offers '' train --epochs ''

if command -v fish >/dev/null; then
  fish_offers() { # fish_offers TEXT LINE: the first column of what is offered
    local found
    # shellcheck disable=SC2016 # fish expands it
    found=$(HOME=$folder fish --no-config -c 'source completion.fish; complete -C "$argv[1]"' "$2" | cut -f1 | LC_ALL=C sort | tr '\n' ' ')
    [[ $found == "$1 " ]] || fail "fish must complete '$2' to '$1': $found"
  }
  fish_offers --optimizer 'lockstep train --opt'
  fish_offers huber 'lockstep train --loss hu'
  fish_offers inspect 'lockstep data ins'
  fish_offers '--strategy=mirrored' 'lockstep train --strategy=mir'
  fish_offers 'accuracy,perplexity' 'lockstep train --metrics accuracy,per'
  fish_offers 'data.toml data/' 'lockstep train --data da'
  fish_offers 'mlp' 'lockstep train --model ml'
  fish_offers 'data.toml' 'lockstep run -n 2 -- cat data.t'
fi

if command -v zsh >/dev/null; then
  mkdir functions
  cp completion.zsh functions/_lockstep
  cat >terminal.zsh <<'ZSH'
# terminal.zsh LINE: the line that an interactive zsh has after the key TAB.
zmodload zsh/zpty
zpty shell env TERM=dumb HOME=$PWD zsh -f -i
zpty -w shell 'PS1= fpath=($PWD/functions $fpath); autoload -Uz compinit; compinit -u -D; accept() { print -r -- "<$BUFFER>"; exit }; zle -N accept; bindkey "^X" accept; print ready$((1 + 1))'
zpty -r -m shell text '*ready2*'
zpty -w -n shell "$1"$'\t\x18'
zpty -r -m shell text '*<*>*'
print -r -- "${${text##*<}%%>*}"
ZSH
  zsh_completes() { # zsh_completes LINE TO
    local found
    found=$(timeout 20 zsh terminal.zsh "$1") || fail "zsh does not answer"
    found=${found%% } # behind what is complete
    [[ $found == "$2" ]] || fail "zsh must complete '$1' to '$2': $found"
  }
  zsh_completes 'lockstep train --opt' 'lockstep train --optimizer'
  zsh_completes 'lockstep train --loss hu' 'lockstep train --loss huber'
  zsh_completes 'lockstep data ins' 'lockstep data inspect'
  zsh_completes 'lockstep train --strategy=mir' 'lockstep train --strategy=mirrored'
  zsh_completes 'lockstep train --metrics accuracy,per' 'lockstep train --metrics accuracy,perplexity'
  zsh_completes 'lockstep train --config data.t' 'lockstep train --config data.toml'
  zsh_completes 'lockstep train --model ml' 'lockstep train --model mlp'
  zsh_completes 'lockstep run -n 2 -- cat data.t' 'lockstep run -n 2 -- cat data.toml'
fi

# The manual page.
"$lockstep" man >lockstep.1
for section in NAME SYNOPSIS DESCRIPTION OPTIONS ENVIRONMENT FILES EXAMPLES 'EXIT STATUS' 'SEE ALSO'; do
  grep -qx -- ".SH $section" lockstep.1 || fail "the manual page must have the section $section"
done
for word in 'lockstep train' 'clip\\-norm' 'lockstep data inspect' LOCKSTEP_ENGINE 'Where it runs:' plan.json \
  'lockstep predict runs/digits' 'TH LOCKSTEP 1 "20'; do
  grep -q -- "$word" lockstep.1 || fail "the manual page must have $word"
done
tr '\n' ' ' <lockstep.1 | grep -qF 'lockstep predict" [\fIOPTIONS\fR] \fB\-o\fR \fIFILE\fR \fIMODEL\fR' ||
  fail "the synopsis must have what is required"
if command -v mandoc >/dev/null; then
  mandoc -Tlint lockstep.1 >lint || fail "mandoc finds faults: $(cat lint)"
fi

# Help has groups.
for group in 'Model:' 'Data:' 'Optimization:' 'Where it runs:' 'The run:' 'Examples:'; do
  grep -qx -- "$group" <("$lockstep" train --help) || fail "the help of train must have the group $group"
done
echo "shell command: passed"
