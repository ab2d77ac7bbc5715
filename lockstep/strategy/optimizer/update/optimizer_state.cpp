#include "lockstep/strategy/optimizer/update/optimizer_state.h"

#include <sstream>
#include <utility>

#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/serialize/archive.h>

namespace lockstep::detail {
namespace {

namespace optim = torch::optim;
using NamedTensors = std::vector<std::pair<std::string, at::Tensor>>;

/// LibTorch's key of a parameter is its address: as text, or in later versions the address itself.
template <class States>
auto find_state(States& states, const at::Tensor& parameter) {
  if constexpr (std::is_same_v<typename States::key_type, std::string>) {
    return states.find(c10::str(parameter.unsafeGetTensorImpl()));
  } else {
    return states.find(parameter.unsafeGetTensorImpl());
  }
}

template <class States>
const optim::OptimizerParamState* state_of(const States& states, const at::Tensor& parameter) {
  const auto found = find_state(states, parameter);
  return found == states.end() ? nullptr : found->second.get();
}

template <class State>
NamedTensors adam_state(const State& state) {
  return {{"exp_avg", state.exp_avg()}, {"exp_avg_sq", state.exp_avg_sq()}, {"max_exp_avg_sq", state.max_exp_avg_sq()}};
}

NamedTensors lbfgs_state(const optim::LBFGSParamState& state) {
  NamedTensors tensors{{"d", state.d()}, {"H_diag", state.H_diag()}, {"prev_flat_grad", state.prev_flat_grad()}};
  for (const at::Tensor& one : state.old_dirs()) tensors.emplace_back("old_dirs", one);
  for (const at::Tensor& one : state.old_stps()) tensors.emplace_back("old_stps", one);
  return tensors;
}

NamedTensors serialized_state(const optim::OptimizerParamState& state) {
  NamedTensors tensors;
  try {
    torch::serialize::OutputArchive written;
    state.serialize(written);
    std::stringstream bytes;
    written.save_to(bytes);
    torch::serialize::InputArchive read;
    read.load_from(bytes);
    for (const std::string& key : read.keys()) {
      c10::IValue value;
      read.read(key, value);
      if (value.isTensor()) tensors.emplace_back(key, value.toTensor());
    }
  } catch (const c10::Error&) {
    tensors.clear();  // it cannot be serialized
  }
  return tensors;
}

NamedTensors tensors_of(const optim::OptimizerParamState& state) {
  if (const auto* sgd = dynamic_cast<const optim::SGDParamState*>(&state)) {
    return {{"momentum_buffer", sgd->momentum_buffer()}};
  }
  if (const auto* adam = dynamic_cast<const optim::AdamParamState*>(&state)) return adam_state(*adam);
  if (const auto* adamw = dynamic_cast<const optim::AdamWParamState*>(&state)) return adam_state(*adamw);
  if (const auto* adagrad = dynamic_cast<const optim::AdagradParamState*>(&state)) return {{"sum", adagrad->sum()}};
  if (const auto* rmsprop = dynamic_cast<const optim::RMSpropParamState*>(&state)) {
    return {{"square_avg", rmsprop->square_avg()},
            {"momentum_buffer", rmsprop->momentum_buffer()},
            {"grad_avg", rmsprop->grad_avg()}};
  }
  if (const auto* lbfgs = dynamic_cast<const optim::LBFGSParamState*>(&state)) return lbfgs_state(*lbfgs);
  return serialized_state(state);
}

}  // namespace

void add_optimizer_state(const optim::Optimizer& optimizer, const at::Tensor& parameter, const std::string& name,
                         HeldTensors& held) {
  const optim::OptimizerParamState* const state = state_of(optimizer.state(), parameter);
  if (state == nullptr) return;
  for (const auto& [what, tensor] : tensors_of(*state)) {
    if (tensor.defined()) held.push_back({c10::str(what, " of ", name), tensor});
  }
}

void erase_optimizer_state(optim::Optimizer& optimizer, const at::Tensor& parameter) {
  auto& states = optimizer.state();
  if (const auto found = find_state(states, parameter); found != states.end()) states.erase(found);
}

}  // namespace lockstep::detail
