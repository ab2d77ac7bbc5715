#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include <torch/types.h>

#include "bench/gpu_models.h"

/// What `bench gpu` needs CUDA's own interface for: gpu_cuda.cpp, or no_gpu_cuda.cpp in a build without it.
namespace lockstep::bench {

/// A training step that a CUDA graph repeats, as a program writes it with LibTorch's CUDAGraph alone.
class StepByHand {
 public:
  virtual ~StepByHand() = default;
  virtual void replay() = 0;
  /// The loss of the last replay; waits for it.
  virtual double loss() const = 0;
  /// Steps that the capture has taken, which is none itself.
  virtual int steps_before() const = 0;
};

/// Makes a model with the state of `first`, and captures forward, backward and update: SGD by `_foreach_add_`, Adam by
/// `_fused_adam_`. Null in a build without CUDA.
std::unique_ptr<StepByHand> capture_by_hand(const GpuCase& gpu_case, const ModelBatch& batch, const GpuModel& first,
                                            double learning_rate);

/// Bytes of LibTorch's allocator on the card.
struct CardBytes {
  int64_t allocated = 0;
  int64_t reserved = 0;
};

/// Nothing in a build without CUDA.
std::optional<CardBytes> card_bytes();

/// The name of the card; "GPU" in a build without CUDA.
std::string card_name();

/// Why this build captures no step; empty if it does.
std::string why_not_captured();

}  // namespace lockstep::bench
