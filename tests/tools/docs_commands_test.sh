#!/usr/bin/env bash
# Compares the calls of `lockstep` in the documentation with its help: docs_commands_test.sh LOCKSTEP ROOT.
# Subcommands must exist, and have the options that the documentation gives them. The README lists all of them.
set -uo pipefail
lockstep=$1
cd "$2" || exit

# Prints FILE:LINE:CALL for the calls in shell blocks, indented blocks and backticks, up to `--`, a comment or a pipe.
calls() {
  awk '
    function tell(text) {
      sub(/^.*lockstep /, "", text)
      sub(/( -- |#|[|>&;`]).*$/, "", text)
      if (text ~ /^[a-z-]/ && text !~ /^(warn|info|error|debug) /) print FILENAME ":" FNR ":" text
    }
    FNR == 1 { fence = 0 }
    /^ *```/ { shell = /```(sh|bash|console)/; fence = !fence; next }
    (fence && shell) && /\\$/ { begun = begun substr($0, 1, length($0) - 1); next }
    begun != "" { $0 = begun $0; begun = "" }
    (fence && shell) || (!fence && /^    /) {
      if ($0 ~ /^ *([a-z0-9]*\$ )?([A-Z_]+=[^ ]+ )*([a-z\/.]*\/)?lockstep [a-z-]/) { gsub(/\\\|/, "|"); tell($0) }
      next
    }
    !fence {
      rest = $0
      while (match(rest, /`lockstep [^`]*`/)) {
        text = substr(rest, RSTART + 1, RLENGTH - 2)
        gsub(/\\\|/, "/", text)
        if (text !~ /: /) tell(text)
        rest = substr(rest, RSTART + RLENGTH)
      }
    }' "$@"
}

declare -A helps
# Sets `help` to the help of a subcommand; empty where there is none.
help_of() {
  local key="lockstep $*"
  if [[ -z ${helps[$key]+set} ]]; then
    helps[$key]=$("$lockstep" "$@" --help 2>/dev/null </dev/null) || helps[$key]=""
  fi
  help=${helps[$key]}
}

failed=0
count=0
fault() {
  echo "$1: $2" >&2
  failed=1
}

while IFS=: read -r file line call; do
  count=$((count + 1))
  read -ra words <<<"$call"
  path=()
  help_of
  # Words that are subcommands; "inspect/verify" is a choice.
  while ((${#words[@]})) && [[ ${words[0]} =~ ^[a-z_]+(/[a-z_]+)*$ ]]; do
    listed=$(sed -n '/^Subcommands:/,$p' <<<"$help")
    [[ -n $listed ]] || break
    for choice in ${words[0]//\// }; do
      grep -qE "^  $choice( |,|$)" <<<"$listed" || fault "$file:$line" "lockstep ${path[*]} has no subcommand $choice"
    done
    path+=("${words[0]%%/*}")
    words=("${words[@]:1}")
    help_of "${path[@]}"
  done
  for word in ${words[@]+"${words[@]}"}; do
    word=${word#[}
    word=${word%%[]=.,:)]*}
    [[ $word =~ ^--?[a-z][a-z-]*$ ]] || continue
    grep -qE -- "(^|[ ,])$word([ ,=]|$)" <<<"$help" || fault "$file:$line" "lockstep ${path[*]} has no option $word"
  done
done < <(calls README.md CONTRIBUTING.md docs/*.md)

# The table of the README has every subcommand of the program.
while read -r name; do
  grep -qE "^\|.*\`lockstep ${name}[ \`]" README.md || fault "README.md" "the table of subcommands lacks lockstep $name"
done < <("$lockstep" --help | sed -n '/^Subcommands:/,$s/^  \([a-z_][a-z_]*\).*/\1/p')

((count > 20)) || fault "docs" "only $count calls of lockstep were found; is the reading of blocks broken?"
echo "docs: $count calls of lockstep"
exit "$failed"
