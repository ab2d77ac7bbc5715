# Checks of commands, for scripts that source it.
# shellcheck shell=bash

fail() {
  echo "FAILED: $1" >&2
  exit 1
}

expect() { # expect STATUS TEXT: the exit status of the command behind it, and a text in its output
  local status=$1 text=$2 output found=0
  shift 2
  output=$("$@" 2>&1) || found=$?
  [[ $found == "$status" ]] || fail "'$*' must end with $status, ended with $found: $output"
  [[ $output == *"$text"* ]] || fail "'$*' must print '$text', printed: $output"
}

expect_text() { # expect_text TEXT in the output of the command behind it, whatever its exit status
  local text=$1 output
  shift
  output=$("$@" 2>&1) || true
  [[ $output == *"$text"* ]] || fail "'$*' must print '$text', printed: $output"
}

# shellcheck disable=SC2154 # the script assigns it
expect_printed() { # expect_printed TEXT in $printed
  [[ $printed == *"$1"* ]] || fail "'$1' must be in: $printed"
}
