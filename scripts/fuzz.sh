#!/usr/bin/env bash
# Throws damaged data at the readers of formats: fuzz.sh [seconds for each target] [target...]. All targets without a name.
# As many at a time as there are cores, two at most. A finding is kept in build/fuzz/findings, and its path printed;
# put it into tests/fuzz/corpus/<target>/ together with its fix.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-60}
shift || true
command -v clang++ >/dev/null || {
  echo "[fuzz] clang++ is missing; run scripts/setup.sh" >&2
  exit 1
}
mkdir -p build
cmake --preset fuzz >build/fuzz.log 2>&1 || {
  cat build/fuzz.log >&2
  exit 1
}
cmake --build --preset fuzz --target fuzz_targets --parallel 2

# Targets of the whole library have no libFuzzer; see cmake/LockstepFuzz.cmake.
mapfile -t whole < <(sed -n 's/^ *lockstep_random_fuzz(\([a-z0-9_]*\))/\1/p' tests/fuzz/CMakeLists.txt)
cmake --preset release >build/fuzz.log 2>&1 || {
  cat build/fuzz.log >&2
  exit 1
}
cmake --build --preset release --target "${whole[@]/%/_fuzz}" --parallel 2

targets=("$@")
if ((${#targets[@]} == 0)); then
  mapfile -t targets < <(sed -n 's/^ *lockstep_fuzz(\([a-z0-9_]*\) .*/\1/p' tests/fuzz/CMakeLists.txt)
  targets+=("${whole[@]}")
fi

fuzz_one() {
  local name=$1 found=build/fuzz/findings/$1 folder=build/fuzz/bin
  if [[ " ${whole[*]} " == *" $1 "* ]]; then
    folder=build/release/bin
    [[ -w /dev/shm ]] && local -x TMPDIR=/dev/shm  # it writes many files
  fi
  mkdir -p "$found" "build/fuzz/corpus/$name"
  # Leaks are the sanitizer tests' business: looking for them after each input costs most of the time.
  if "$folder/${name}_fuzz" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=2048 -detect_leaks=0 \
    -artifact_prefix="$found/" "build/fuzz/corpus/$name" "tests/fuzz/corpus/$name" >"build/fuzz/$name.log" 2>&1; then
    echo "fuzz: $name: $(grep -oE '^Done [0-9]+ runs' "build/fuzz/$name.log" || true) in $seconds s, nothing found"
  else
    echo "fuzz: $name: fell over; see build/fuzz/$name.log and"
    find "$found" -type f -printf 'fuzz:   %p\n'
    return 1
  fi
}

failed=0
running=0
for name in "${targets[@]}"; do
  fuzz_one "$name" &
  running=$((running + 1))
  if ((running == 2)); then
    wait -n || failed=1
    running=1
  fi
done
while ((running > 0)); do
  wait -n || failed=1
  running=$((running - 1))
done
exit "$failed"
