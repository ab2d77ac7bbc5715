#pragma once

#include <string>
#include <vector>

#include "bench/gpu_line.h"
#include "bench/gpu_models.h"

/// `bench gpu`: what a step costs on a GPU, each as a ratio of two things that are measured alternately in one process.
/// All of it is measured on the first card; two replicas are two logical GPUs on it.
namespace lockstep::bench {

struct GpuOptions {
  GpuCaseFilter filter;
  /// How long each case is measured, after its warm-up.
  double seconds = 1.5;
  /// Of the memory measurement.
  int captured_steps = 10'000;
};

/// Throws c10::ValueError where there is no GPU.
void check_gpu();

/// "gpu": the card, LibTorch, and whether this build captures steps.
GpuLine describe_gpu();

/// "gpu/eager": the step of OneDeviceStrategy and of MirroredStrategy on one GPU against LibTorch's own loop.
GpuLine bench_gpu_eager(const GpuCase& gpu_case, const GpuOptions& options);

/// "gpu/captured": the step of `pure` against a CUDA graph of the same step that is written by hand, with the same
/// tensors as input at each step.
GpuLine bench_gpu_captured(const GpuCase& gpu_case, const GpuOptions& options);

/// "gpu/memory": what many calls of a captured step leave allocated.
GpuLine bench_gpu_memory(const GpuOptions& options);

/// "gpu/all_reduce": 256 MiB in place on two replicas, against copies within the card.
GpuLine bench_gpu_all_reduce(const GpuOptions& options);

/// "gpu/overlap": how much of the communication of gradients is hidden behind backward.
GpuLine bench_gpu_overlap(const GpuOptions& options);

/// "gpu/replicas": two replicas against one with the same global batch.
GpuLine bench_gpu_replicas(const GpuCase& gpu_case, const GpuOptions& options);

}  // namespace lockstep::bench
