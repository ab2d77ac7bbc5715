#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include <ATen/core/Tensor.h>
#include <torch/optim/optimizer.h>

/// Internal: the state of LibTorch's optimizers for the rows of a table (see row_update.h).
namespace lockstep::detail {

/// Returns a tensor of zeros. Each page gets memory when it is first written.
at::Tensor lazy_zeros(at::IntArrayRef sizes, at::ScalarType dtype);

/// The optimizers whose state is known.
enum class UpdateRule { Sgd, Adam, AdamW, Adagrad, Rmsprop, Unknown };
UpdateRule update_rule(const torch::optim::Optimizer& optimizer);

/// Returns the state of one parameter before its first step, without tensors.
std::unique_ptr<torch::optim::OptimizerParamState> empty_state(UpdateRule rule);

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
  /// Returns the memory of a field, zeros at first. Owners of one process have it in common.
  using MakeMemory = std::function<at::Tensor(int field, at::IntArrayRef sizes, at::ScalarType dtype)>;

  /// `optimizer` is of the kind whose state this is; state is computed and stored in `dtype`.
  RowState(const torch::optim::Optimizer& optimizer, at::IntArrayRef sizes, at::ScalarType dtype,
           MakeMemory make_memory);

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

  /// Number of steps so far.
  int64_t steps() const { return steps_; }
  at::ScalarType dtype() const { return dtype_; }
  /// The memory of a field; undefined where no step has used it.
  const at::Tensor& table(int field) const { return memory_[field]; }
  /// Takes over what was loaded: the fields whose memory is defined.
  void load(int64_t steps, std::array<at::Tensor, StateFields::kMax> memory);

 private:
  UpdateRule rule_;
  std::vector<int64_t> sizes_;
  at::ScalarType dtype_;
  double untouched_ = 0;
  int64_t steps_ = 0;
  std::unique_ptr<torch::optim::OptimizerOptions> options_;
  std::array<bool, StateFields::kMax> used_{};
  std::array<at::Tensor, StateFields::kMax> memory_;
  MakeMemory make_memory_;
};

/// Returns the bits by which values of a field and its memory differ: those of `untouched` in this dtype, which has 4
/// or 8 bytes.
uint64_t untouched_bits(double untouched, at::ScalarType dtype);

}  // namespace lockstep::detail
