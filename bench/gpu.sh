#!/usr/bin/env bash
# Builds the command on a machine with a GPU and measures it: bench/gpu.sh [OPTION of `lockstep bench gpu`...]
# Standard output has one JSON object per line. The build is in build/gpu (LOCKSTEP_GPU_BUILD); its log, and where LibTorch was
# found, are on standard error. LibTorch is that of CMAKE_PREFIX_PATH, or the one that python3 has.
set -euo pipefail
cd "$(dirname "$0")/.."

build=${LOCKSTEP_GPU_BUILD:-build/gpu}
fail() {
  echo "[gpu.sh] $1" >&2
  exit 1
}
python_torch() {
  python3 -c 'import importlib.util as u; s = u.find_spec("torch"); print(s.submodule_search_locations[0] if s else "")' 2>/dev/null
}
prefix=${CMAKE_PREFIX_PATH:-$(python_torch)}
[[ -n $prefix ]] || fail "no LibTorch was found; install torch for python3, or set CMAKE_PREFIX_PATH to the folder that has share/cmake/Torch"
echo "gpu.sh: LibTorch of $prefix, build in $build" >&2
mkdir -p "$build"
cmake --preset release -B "$build" -DCMAKE_PREFIX_PATH="$prefix" >"$build/configure.log" 2>&1 ||
  { tail -n 40 "$build/configure.log" >&2 && fail "the configuration failed; see $build/configure.log"; }

# The stand-in for NCCL gives gradients a wire between two replicas on one card. Streams have queues of their own, as they
# have on two cards.
stand_in=lockstep_nccl_standin
targets=(lockstep_command)
help=$(cmake --build "$build" --target help)
if grep -q "^$stand_in:" <<<"$help"; then targets+=("$stand_in"); else stand_in=; fi
cmake --build "$build" --parallel "$(nproc)" --target "${targets[@]}" >&2 || fail "the build failed"

lockstep=$build/bin/lockstep
wire=()
if [[ -n $stand_in ]]; then wire=(LOCKSTEP_NCCL_STANDIN=1 NCCL_STANDIN_WIRE_GBPS=20 CUDA_DEVICE_MAX_CONNECTIONS=32); fi
[[ " $* " != *" --only overlap "* ]] || exec env "${wire[@]}" "$lockstep" bench gpu --json "$@"
[[ " $* " != *" --only"* ]] || exec "$lockstep" bench gpu --json "$@"
status=0
"$lockstep" bench gpu --json --only eager,captured,memory,all_reduce,replicas "$@" || status=$?
env "${wire[@]}" "$lockstep" bench gpu --json --only overlap "$@" || status=$?
"$lockstep" bench input --device GPU:0 --json || status=$?
exit "$status"
