#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include <torch/optim/optimizer.h>

#include "lockstep/api.h"
#include "lockstep/strategy/optimizer/replica_check.h"
#include "lockstep/strategy/optimizer/update/optimizer_prototype.h"

namespace lockstep::detail {

/// Adds the tensors of an optimizer's state for one parameter: "exp_avg of first.weight". Of a class of the user those
/// that its state serializes; none where it serializes nothing.
LOCKSTEP_API void add_optimizer_state(const torch::optim::Optimizer& optimizer, const at::Tensor& parameter,
                                      const std::string& name, HeldTensors& held);

/// Returns what an optimizer keeps for one parameter; null before it is made.
torch::optim::OptimizerParamState* find_optimizer_state(torch::optim::Optimizer& optimizer,
                                                        const at::Tensor& parameter);
/// Replaces it.
void set_optimizer_state(torch::optim::Optimizer& optimizer, const at::Tensor& parameter,
                         std::unique_ptr<torch::optim::OptimizerParamState> state);

/// Erases an optimizer's state for one parameter, which the next step makes anew.
void erase_optimizer_state(torch::optim::Optimizer& optimizer, const at::Tensor& parameter);

/// What an optimizer keeps for one parameter, or for some elements of one, by the names of LibTorch's fields. Lists are
/// numbered: "old_dirs.0". Empty before the first update.
struct ParameterState {
  std::map<std::string, at::Tensor> tensors = {};
  std::map<std::string, int64_t> integers = {};
  std::map<std::string, double> numbers = {};

  bool empty() const { return tensors.empty() && integers.empty() && numbers.empty(); }
};

/// How the state of a parameter is made up.
struct StateSchema {
  enum class Kind {
    /// Each tensor has one value for each element of the parameter: SGD, Adam, AdamW, Adagrad, RMSprop and classes
    /// derived from them.
    Elements,
    /// LBFGS: one state for all parameters, kept for the first one.
    Lbfgs,
    /// A class of the user: what its state serializes.
    Serialized,
  };
  Kind kind = Kind::Serialized;
  /// For elements: the names of the tensors, and whether there is a number `step`.
  std::vector<std::string> tensors = {};
  bool has_step = false;
};
LOCKSTEP_API StateSchema state_schema(const torch::optim::Optimizer& optimizer);
/// Whether a state of elements has nothing else: a class that is derived from one of LibTorch's may have its own.
LOCKSTEP_API bool has_only(const StateSchema& schema, const ParameterState& state);

/// Whether a state of elements has this tensor whenever there has been an update with these options.
LOCKSTEP_API bool is_needed(const std::string& tensor, const torch::optim::OptimizerOptions& options);

/// Returns the state of one parameter. The tensors are the optimizer's own. NotImplementedError, with the name of the
/// class, where a state of the user's cannot be read.
LOCKSTEP_API ParameterState read_parameter_state(const torch::optim::Optimizer& optimizer, const at::Tensor& parameter);
/// Replaces the state of one parameter, of a group of the prototype. The optimizer keeps the tensors.
LOCKSTEP_API void write_parameter_state(torch::optim::Optimizer& optimizer, const at::Tensor& parameter,
                                        const ParameterState& state, const OptimizerPrototype& prototype, size_t group);

}  // namespace lockstep::detail
