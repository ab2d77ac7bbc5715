#!/usr/bin/env bash
# Builds the library and its main suites with a LibTorch of PyPI and runs them: check_libtorch.sh VERSION|newest [JOBS].
# Then it installs the library, and builds and runs a program that finds it. The build folder is build/libtorch/VERSION; it is
# kept, and a second run builds what has changed.
# A LibTorch with CUDA is configured with the CUDA toolkit of this machine; it needs no GPU.
set -euo pipefail
cd "$(dirname "$0")/.."

wanted=${1:-}
jobs=${2:-$(nproc)}
suites=(lockstep_comm_test lockstep_strategy_test lockstep_conformance_test lockstep_peers_test)
fail() {
  echo "[check_libtorch] $1" >&2
  exit 1
}
if [[ $wanted == newest ]]; then
  wanted=$(python3 -m pip index versions torch 2>/dev/null | sed -n 's/^torch (\(.*\))$/\1/p')
  [[ -n $wanted ]] || fail "pip cannot list the versions of torch; name one: check_libtorch.sh VERSION"
fi
[[ $wanted =~ ^[0-9]+(\.[0-9]+)+$ ]] || fail "a version is needed: version='$wanted'; write for example 2.8.0, or newest"

folder=build/libtorch/$wanted
log=$folder/log
mkdir -p "$folder"
python=$folder/venv/bin/python
# Where torch is installed; empty where it is not. Asked of the files, as importing it needs more packages than C++ does.
torch_folder() {
  find "$folder/venv" -path '*/site-packages/torch/share/cmake/Torch/TorchConfig.cmake' 2>/dev/null |
    sed 's#/share/cmake/Torch/TorchConfig.cmake$##'
}
if [[ -z $(torch_folder) ]]; then
  python3 -m venv "$folder/venv" || fail "python3 makes no virtual environment; install python3-venv"
  echo "libtorch: installing torch $wanted into $folder/venv"
  # The index may offer a version without CUDA, which needs no other package. Other versions need the libraries of CUDA.
  "$python" -m pip install --quiet --no-deps "torch==$wanted+cpu" 2>/dev/null ||
    "$python" -m pip install --quiet "torch==$wanted" || fail "pip cannot install torch $wanted"
fi
torch=$(torch_folder)
[[ -n $torch ]] || fail "the package has no CMake files: torch==$wanted; take another version"

cmake --preset release -B "$folder/release" -DCMAKE_PREFIX_PATH="$PWD/$torch" -DLOCKSTEP_BUILD_TOOLS=OFF \
  -DLOCKSTEP_BUILD_EXAMPLES=OFF -DLOCKSTEP_BUILD_BENCH=OFF >"$log" 2>&1 ||
  { tail -n 40 "$log" && fail "the configuration failed; see $log"; }
grep -E '^-- +(LibTorch|Gloo|MPI|NCCL) ' "$log"
cmake --build "$folder/release" --parallel "$jobs" --target lockstep_installed "${suites[@]}"
ctest --test-dir "$folder/release" --output-on-failure --no-tests=error --verbose --output-log "$log" >/dev/null \
  -R "^($(IFS='|' && echo "${suites[*]}")(_[0-9]+)?|install|consumer)$" || { tail -n 60 "$log" && fail "tests fail; see $log"; }
grep -E '^ *[0-9]+/[0-9]+ Test|^[0-9]+% tests passed' "$log"
# LibTorch prints a line for each of its functions that it calls deprecated.
if grep -E 'Warning: .*deprecated' "$log" | sort -u; then
  fail "deprecated functions of LibTorch are called; see $log"
fi
echo "libtorch: $wanted on $(date -u +%Y-%m-%d): ${suites[*]} install consumer passed"
