#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

/// Inside: what LibTorch's optimizers remember, kept for the rows of a table (see row_update.h).
namespace lockstep::detail {

/// Returns a tensor of zeros whose memory is the system's until it is written, page by page.
at::Tensor lazy_zeros(at::IntArrayRef sizes, at::ScalarType dtype);

/// The optimizers whose state is known.
enum class UpdateRule { kSgd, kAdam, kAdamW, kAdagrad, kRmsprop, kUnknown };
UpdateRule update_rule(const torch::optim::Optimizer& optimizer);

/// The tensors of an optimizer's state for one parameter. Null are those that do not exist, or that the options in
/// force do not use.
struct StateFields {
  static constexpr int kMax = 3;

  std::array<at::Tensor*, kMax> tensors{};
  int64_t* step = nullptr;
};
StateFields state_fields(UpdateRule rule, torch::optim::OptimizerParamState& state,
                         const torch::optim::OptimizerOptions& options);

/// The state of a whole table.
class RowState {
 public:
  /// `optimizer` is one of the kind whose state it is; `dtype` what state is computed and kept in.
  RowState(const torch::optim::Optimizer& optimizer, at::IntArrayRef sizes, at::ScalarType dtype);

  /// Counts one more step, and gets memory for what it needs under these options.
  void begin_step(const torch::optim::OptimizerOptions& options);

  UpdateRule rule() const { return rule_; }
  /// Steps before this one.
  int64_t steps_before() const { return steps_ - 1; }
  /// The options that this step's optimizers are to have.
  const torch::optim::OptimizerOptions& options() const { return *options_; }
  /// Number of fields that the options use.
  int num_used() const;

  bool uses(int field) const { return used_[field]; }
  /// All rows of a field; bits are those of the value with those of `untouched()` flipped, so zeros are that value.
  char* memory(int field) const { return static_cast<char*>(memory_[field].data_ptr()); }
  /// What state is where no step was made.
  double untouched() const { return untouched_; }

 private:
  UpdateRule rule_;
  std::vector<int64_t> sizes_;
  at::ScalarType dtype_;
  double untouched_ = 0;
  int64_t steps_ = 0;
  std::unique_ptr<torch::optim::OptimizerOptions> options_;
  std::array<bool, StateFields::kMax> used_{};
  std::array<at::Tensor, StateFields::kMax> memory_;
};

}  // namespace lockstep::detail
