#!/usr/bin/env bash
# Runs the tests of GPUs on a machine that has one: check_gpu.sh [tests|standin|memcheck|racecheck|all]   default: all
#
#   tests       the conformance suites on one GPU and on up to four logical GPUs, and the suites that have cases for GPUs
#   standin     the conformance suites on replicas, and on two workers, whose NCCL is the stand-in of the tests; faults of
#               workers
#   memcheck    a small selection under compute-sanitizer: reads and writes out of range
#   racecheck   the kernels of lockstep: races in shared memory
#
# Programs are taken from LOCKSTEP_GPU_BIN, or built in build/gpu (LOCKSTEP_GPU_BUILD) with the LibTorch that bench/gpu.sh takes.
# A program that is not there is left out and named. The exit status is 1 if anything failed.
set -uo pipefail
cd "$(dirname "$0")/.." || exit

what=${1:-all}
case $what in tests | standin | memcheck | racecheck | all) ;; *)
  echo "[check_gpu] it runs tests, standin, memcheck, racecheck or all: got '$what'" >&2
  exit 2
  ;;
esac
sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null)
if [[ $what != tests && $what != standin && -z $sanitizer ]]; then
  echo "[check_gpu] compute-sanitizer was not found; install the CUDA toolkit and put its bin into PATH" >&2
  exit 2
fi

programs=(lockstep_device_test lockstep_comm_test lockstep_strategy_test lockstep_conformance_test lockstep_conformance_train_test
  lockstep_conformance_state_test lockstep_data_test lockstep_nn_test lockstep_train_test lockstep_gpu_test)
nvidia-smi -L >/dev/null || {
  echo "[check_gpu] it needs a GPU; nvidia-smi finds none" >&2
  exit 2
}
bin=${LOCKSTEP_GPU_BIN:-}
if [[ -z $bin ]]; then
  build=${LOCKSTEP_GPU_BUILD:-build/gpu}
  bin=$build/bin
  [[ -f $build/build.ninja ]] || LOCKSTEP_GPU_BUILD=$build bench/gpu.sh --only all_reduce --seconds 0.1 >/dev/null || exit
  targets=$(cmake --build "$build" --target help)
  started=()
  if grep -q '^lockstep_nccl_test:' <<<"$targets"; then
    programs+=(lockstep_nccl_test)
    started=(lockstep_command lockstep_faults_test)
  fi
  cmake --build "$build" --parallel "$(nproc)" --target "${programs[@]}" "${started[@]}" >&2 || exit
else
  programs+=(lockstep_nccl_test)
fi

# Names of cases on GPUs: OneDeviceGPU, MirroredGPU2, GroupCudaTest and so on.
gpu_cases='*GPU*:*Gpu*:*Cuda*:*CUDA*:*Nccl*'
# Cases that touch every kind of kernel once: a checked kernel is 10 to 50 times as slow.
checked_cases='*GroupCuda*:OptimizerTest*/*GPU*:TrainingTest*/*GPU*:PureTest*/*GPU*:*PeerKernel*:*FusedUpdate*:*HostCopier*'
# Cases of kernels of lockstep itself; those of LibTorch are not ours to check.
kernel_cases='*GroupCuda*:*PeerKernel*:*FusedUpdate*'

failed=()
missing=()
num_passed=0
# report PROCESSES LABEL COMMAND...: runs tests, which pass where the command succeeds and a test of each process was not
# skipped.
report() {
  local processes=$1 label=$2 log
  shift 2
  log=$(mktemp)
  if timeout "${LOCKSTEP_GPU_TIMEOUT:-900}" "$@" >"$log" 2>&1 &&
    (($(grep -acE '\[  PASSED  \] [1-9]' "$log") >= processes)); then
    num_passed=$((num_passed + 1))
    echo "check_gpu: passed: $label ($(grep -aoE '\[  PASSED  \] [0-9]+ tests?' "$log" | head -n 1 | cut -d' ' -f6-))"
  else
    failed+=("$label")
    echo "check_gpu: failed: $label"
    grep -aE 'FAILED|Failure|=========|rror' "$log" | head -n 40
  fi
  rm -f "$log"
}
# run NAME FILTER COMMAND...: runs a program with the cases of the filter, where it has any.
run() {
  local name=$1 filter=$2 cases
  shift 2
  if [[ ! -x $bin/$name ]]; then
    missing+=("$name")
    return
  fi
  if ! cases=$("$bin/$name" --gtest_list_tests --gtest_filter="$filter"); then
    failed+=("listing $name")
    return
  fi
  [[ $cases == *$'\n  '* ]] || return 0
  report 1 "$* $name" "$@" "$bin/$name" --gtest_filter="$filter" --gtest_brief=1
}
has_gloo() { [[ -e $bin/../lib/liblockstep_gloo.so ]]; }
has_open_mpi() { [[ -e $bin/../lib/liblockstep_mpi.so ]] && mpirun --version 2>/dev/null | grep -q 'Open MPI'; }
# run_workers NAME FILTER: runs a program on two workers that share the card. Their hosts exchange by Gloo, or by MPI where
# Gloo is not there.
run_workers() {
  local name=$1 filter=$2 start
  if has_gloo && [[ -x $bin/lockstep ]]; then
    start=("$bin/lockstep" run -n 2 --)
  elif has_open_mpi; then
    start=(mpirun --allow-run-as-root --oversubscribe --bind-to none -n 2)
  else
    missing+=("the command lockstep with Gloo, or Open MPI, for two workers of $name")
    return
  fi
  if [[ ! -x $bin/$name ]]; then
    missing+=("$name")
    return
  fi
  report 2 "two workers of $name" env LOCKSTEP_ENGINE=nccl "${start[@]}" "$bin/$name" --gtest_filter="$filter" \
    --gtest_brief=1
}
each_program() {
  local name
  for name in "${programs[@]}"; do run "$name" "$@"; done
}

if [[ $what == tests || $what == all ]]; then each_program "$gpu_cases" env; fi
if [[ $what == standin && ! -x $bin/lockstep_nccl_test ]]; then
  echo "[check_gpu] lockstep_nccl_test is not there, so the stand-in is not; it is not built without NCCL and nvcc: bin=$bin" >&2
  exit 2
elif [[ $what == all && ! -x $bin/lockstep_nccl_test ]]; then
  echo "check_gpu: left out: standin, which is not built without NCCL and nvcc"
elif [[ $what == standin || $what == all ]]; then
  export LOCKSTEP_NCCL_STANDIN=1
  for name in lockstep_conformance_test lockstep_conformance_train_test; do run "$name" '*MirroredGPU*' env; done
  run lockstep_gpu_test '*' env
  run_workers lockstep_conformance_test '*Workers2x*GPU*'
  # Not those of workers that are stopped: what notices them, heartbeats, has nothing to do with NCCL.
  faults='*SignalTest*kill*:*ThrowTest*:*SlowTest*:*MismatchTest*:*OwnerTest*:*ReturnTest*:*LeaveTest*:*ElsewhereTest*'
  if has_gloo; then run lockstep_faults_test "$faults" env; else missing+=("Gloo, for lockstep_faults_test"); fi
  unset LOCKSTEP_NCCL_STANDIN
fi
if [[ $what == memcheck || $what == all ]]; then
  # Calls that CUDA refuses are errors of LibTorch, which the program handles; a recording that is refused makes some.
  memcheck=("$sanitizer" --tool memcheck --report-api-errors no --error-exitcode 86)
  # Without LibTorch's cache every tensor is an allocation of its own, past whose end the tool sees a read. Graphs need the cache.
  each_program "$checked_cases:-*Pure*:*Captur*" env PYTORCH_NO_CUDA_MEMORY_CACHING=1 "${memcheck[@]}"
  each_program '*Pure*GPU*:*Captur*' "${memcheck[@]}"
fi
if [[ $what == racecheck || $what == all ]]; then each_program "$kernel_cases" "$sanitizer" --tool racecheck --error-exitcode 86; fi

if ((${#missing[@]})); then mapfile -t missing < <(printf '%s\n' "${missing[@]}" | sort -u); fi
for each in "${missing[@]}"; do echo "check_gpu: not there: $each"; done
if ((${#failed[@]})); then
  printf 'check_gpu: failed: %s\n' "${failed[@]}" >&2
  exit 1
fi
if ((num_passed == 0)); then
  echo "[check_gpu] no program ran: build the tests, or set LOCKSTEP_GPU_BIN to the folder that has them" >&2
  exit 1
fi
echo "check_gpu: no failure: passed=$num_passed, not there=${#missing[@]}"
