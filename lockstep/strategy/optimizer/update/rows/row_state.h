#pragma once

#include <array>
#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

/// Internal: the state of LibTorch's optimizers for the rows of a table (see row_update.h).
namespace lockstep::detail {

/// Returns a tensor of zeros. Each page gets memory when it is first written.
at::Tensor lazy_zeros(at::IntArrayRef sizes, at::ScalarType dtype);

/// The optimizers whose state is known.
enum class UpdateRule { Sgd, Adam, AdamW, Adagrad, Rmsprop, Unknown };
UpdateRule update_rule(const torch::optim::Optimizer& optimizer);

/// The tensors of an optimizer's state for one parameter. Those that the options do not use are null.
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
  /// `optimizer` is of the kind whose state this is; state is computed and stored in `dtype`.
  RowState(const torch::optim::Optimizer& optimizer, at::IntArrayRef sizes, at::ScalarType dtype);

  /// Counts one more step and allocates the fields that these options use.
  void begin_step(const torch::optim::OptimizerOptions& options);

  UpdateRule rule() const { return rule_; }
  /// Number of steps before this one.
  int64_t steps_before() const { return steps_ - 1; }
  /// The options for the optimizers of this step.
  const torch::optim::OptimizerOptions& options() const { return *options_; }
  /// Number of fields that the options use.
  int num_used() const;

  bool uses(int field) const { return used_[field]; }
  /// All rows of a field, stored xor the bits of `untouched()`: memory of zeros holds that value.
  char* memory(int field) const { return static_cast<char*>(memory_[field].data_ptr()); }
  /// The value of state before the first step.
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
