#include "lockstep/strategy/optimizer/update/optimizer_state.h"

#include <algorithm>
#include <sstream>
#include <typeinfo>
#include <utility>

#include <ATen/ATen.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/lbfgs.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>
#include <torch/serialize/archive.h>

#include "lockstep/base/error.h"

namespace lockstep::detail {
namespace {

namespace optim = torch::optim;

/// LibTorch's key of a parameter is its address: as text, or in later versions the address itself.
template <class Key>
Key key_of(const at::Tensor& parameter) {
  if constexpr (std::is_same_v<Key, std::string>) {
    return c10::str(parameter.unsafeGetTensorImpl());
  } else {
    return parameter.unsafeGetTensorImpl();
  }
}

const optim::OptimizerParamState* kept_state(const optim::Optimizer& optimizer, const at::Tensor& parameter) {
  const auto& states = optimizer.state();
  using States = std::remove_cvref_t<decltype(states)>;
  const auto found = states.find(key_of<typename States::key_type>(parameter));
  return found == states.end() ? nullptr : found->second.get();
}

void add_tensor(ParameterState& state, const std::string& name, const at::Tensor& tensor) {
  if (tensor.defined()) state.tensors.emplace(name, tensor);
}

template <class List>
void add_list(ParameterState& state, const std::string& name, const List& list) {
  for (size_t i = 0; i < list.size(); ++i) add_tensor(state, c10::str(name, ".", i), list[i]);
}

at::Tensor tensor_or_none(const ParameterState& state, const std::string& name) {
  const auto found = state.tensors.find(name);
  return found == state.tensors.end() ? at::Tensor() : found->second;
}

int64_t integer_or_zero(const ParameterState& state, const std::string& name) {
  const auto found = state.integers.find(name);
  return found == state.integers.end() ? 0 : found->second;
}

double number_or_zero(const ParameterState& state, const std::string& name) {
  const auto found = state.numbers.find(name);
  return found == state.numbers.end() ? 0 : found->second;
}

template <class List>
List list_of(const ParameterState& state, const std::string& name) {
  List list;
  for (size_t i = 0;; ++i) {
    const auto found = state.tensors.find(c10::str(name, ".", i));
    if (found == state.tensors.end()) return list;
    list.push_back(found->second);
  }
}

template <class State>
ParameterState read_adam(const State& from) {
  ParameterState state;
  add_tensor(state, "exp_avg", from.exp_avg());
  add_tensor(state, "exp_avg_sq", from.exp_avg_sq());
  add_tensor(state, "max_exp_avg_sq", from.max_exp_avg_sq());
  state.integers["step"] = from.step();
  return state;
}

template <class State>
std::unique_ptr<State> make_adam(const ParameterState& from) {
  auto state = std::make_unique<State>();
  state->exp_avg(tensor_or_none(from, "exp_avg"));
  state->exp_avg_sq(tensor_or_none(from, "exp_avg_sq"));
  state->max_exp_avg_sq(tensor_or_none(from, "max_exp_avg_sq"));
  state->step(integer_or_zero(from, "step"));
  return state;
}

ParameterState read_rmsprop(const optim::RMSpropParamState& from) {
  ParameterState state;
  add_tensor(state, "square_avg", from.square_avg());
  add_tensor(state, "momentum_buffer", from.momentum_buffer());
  add_tensor(state, "grad_avg", from.grad_avg());
  state.integers["step"] = from.step();
  return state;
}

std::unique_ptr<optim::OptimizerParamState> make_rmsprop(const ParameterState& from) {
  auto state = std::make_unique<optim::RMSpropParamState>();
  state->square_avg(tensor_or_none(from, "square_avg"));
  state->momentum_buffer(tensor_or_none(from, "momentum_buffer"));
  state->grad_avg(tensor_or_none(from, "grad_avg"));
  state->step(integer_or_zero(from, "step"));
  return state;
}

ParameterState read_lbfgs(const optim::LBFGSParamState& from) {
  ParameterState state;
  add_tensor(state, "d", from.d());
  add_tensor(state, "H_diag", from.H_diag());
  add_tensor(state, "prev_flat_grad", from.prev_flat_grad());
  add_list(state, "old_dirs", from.old_dirs());
  add_list(state, "old_stps", from.old_stps());
  add_list(state, "ro", from.ro());
  if (from.al().has_value()) add_list(state, "al", *from.al());
  state.integers = {{"func_evals", from.func_evals()}, {"n_iter", from.n_iter()}};
  state.numbers = {{"t", from.t()}, {"prev_loss", from.prev_loss()}};
  return state;
}

std::unique_ptr<optim::OptimizerParamState> make_lbfgs(const ParameterState& from, const optim::LBFGSOptions& options) {
  auto state = std::make_unique<optim::LBFGSParamState>();
  state->d(tensor_or_none(from, "d"));
  state->H_diag(tensor_or_none(from, "H_diag"));
  state->prev_flat_grad(tensor_or_none(from, "prev_flat_grad"));
  state->old_dirs(list_of<std::deque<at::Tensor>>(from, "old_dirs"));
  state->old_stps(list_of<std::deque<at::Tensor>>(from, "old_stps"));
  state->ro(list_of<std::deque<at::Tensor>>(from, "ro"));
  // LibTorch gives it as many places as there can be directions.
  auto al = list_of<std::vector<at::Tensor>>(from, "al");
  if (!al.empty()) {
    al.resize(std::max(al.size(), static_cast<size_t>(options.history_size())));
    state->al(std::move(al));
  }
  state->func_evals(integer_or_zero(from, "func_evals"));
  state->n_iter(integer_or_zero(from, "n_iter"));
  state->t(number_or_zero(from, "t"));
  state->prev_loss(number_or_zero(from, "prev_loss"));
  return state;
}

[[noreturn]] void throw_unknown(const std::type_info& type, const char* why) {
  LOCKSTEP_THROW(c10::NotImplementedError, "[optimizer state] the state of an optimizer's own class ", why,
                 ": class=", c10::demangle(type.name()),
                 "; define serialize of its OptimizerParamState, with tensors, integers and numbers");
}

/// Reads what a class of the user writes.
/// With `leaves_out_unknown` values that are no tensor, integer or number are not there; otherwise they are an error.
ParameterState read_serialized(const optim::OptimizerParamState& from, bool leaves_out_unknown) {
  ParameterState state;
  torch::serialize::InputArchive read;
  try {
    torch::serialize::OutputArchive written;
    from.serialize(written);
    std::stringstream bytes;
    written.save_to(bytes);
    read.load_from(bytes);
  } catch (const c10::Error&) {
    if (leaves_out_unknown) return state;
    throw_unknown(typeid(from), "cannot be serialized");
  }
  for (const std::string& key : read.keys()) {
    c10::IValue value;
    read.read(key, value);
    if (value.isTensor()) {
      add_tensor(state, key, value.toTensor());
    } else if (value.isInt()) {
      state.integers[key] = value.toInt();
    } else if (value.isDouble()) {
      state.numbers[key] = value.toDouble();
    } else if (!leaves_out_unknown) {
      throw_unknown(typeid(from), "has a value that is no tensor, integer or number");
    }
  }
  return state;
}

/// A step of a stand-in with a gradient of zeros makes a state of the class, which then reads the values.
std::unique_ptr<optim::OptimizerParamState> make_serialized(const OptimizerPrototype& prototype, size_t group,
                                                            const at::Tensor& parameter, const ParameterState& from) {
  const at::Tensor stand_in = at::zeros_like(parameter).set_requires_grad(true);
  stand_in.mutable_grad() = at::zeros_like(parameter);
  const auto stepped = prototype.make_for(stand_in, group);
  stepped->step();
  const optim::OptimizerParamState* const present = kept_state(*stepped, stand_in);
  if (present == nullptr) throw_unknown(typeid(*stepped), "is not made by a step");
  std::unique_ptr<optim::OptimizerParamState> state = present->clone();
  torch::serialize::OutputArchive written;
  for (const auto& [name, tensor] : from.tensors) written.write(name, tensor.cpu());
  for (const auto& [name, number] : from.integers) written.write(name, c10::IValue(number));
  for (const auto& [name, number] : from.numbers) written.write(name, c10::IValue(number));
  std::stringstream bytes;
  written.save_to(bytes);
  torch::serialize::InputArchive read;
  read.load_from(bytes, parameter.device());
  state->serialize(read);
  return state;
}

ParameterState read_state(const optim::OptimizerParamState& state, bool leaves_out_unknown) {
  if (const auto* sgd = dynamic_cast<const optim::SGDParamState*>(&state)) {
    ParameterState read;
    add_tensor(read, "momentum_buffer", sgd->momentum_buffer());
    return read;
  }
  if (const auto* adam = dynamic_cast<const optim::AdamParamState*>(&state)) return read_adam(*adam);
  if (const auto* adamw = dynamic_cast<const optim::AdamWParamState*>(&state)) return read_adam(*adamw);
  if (const auto* adagrad = dynamic_cast<const optim::AdagradParamState*>(&state)) {
    return {{{"sum", adagrad->sum()}}, {{"step", adagrad->step()}}};
  }
  if (const auto* rmsprop = dynamic_cast<const optim::RMSpropParamState*>(&state)) return read_rmsprop(*rmsprop);
  if (const auto* lbfgs = dynamic_cast<const optim::LBFGSParamState*>(&state)) return read_lbfgs(*lbfgs);
  return read_serialized(state, leaves_out_unknown);
}

}  // namespace

StateSchema state_schema(const optim::Optimizer& optimizer) {
  using Kind = StateSchema::Kind;
  if (dynamic_cast<const optim::SGD*>(&optimizer) != nullptr) return {Kind::Elements, {"momentum_buffer"}, false};
  if (dynamic_cast<const optim::Adam*>(&optimizer) != nullptr ||
      dynamic_cast<const optim::AdamW*>(&optimizer) != nullptr) {
    return {Kind::Elements, {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}, true};
  }
  if (dynamic_cast<const optim::Adagrad*>(&optimizer) != nullptr) return {Kind::Elements, {"sum"}, true};
  if (dynamic_cast<const optim::RMSprop*>(&optimizer) != nullptr) {
    return {Kind::Elements, {"square_avg", "momentum_buffer", "grad_avg"}, true};
  }
  if (dynamic_cast<const optim::LBFGS*>(&optimizer) != nullptr) return {Kind::Lbfgs};
  return {};
}

bool has_only(const StateSchema& schema, const ParameterState& state) {
  const auto is_known = [&](const auto& item) {
    return std::find(schema.tensors.begin(), schema.tensors.end(), item.first) != schema.tensors.end();
  };
  const auto is_step = [&](const auto& item) { return schema.has_step && item.first == "step"; };
  return std::all_of(state.tensors.begin(), state.tensors.end(), is_known) &&
         std::all_of(state.integers.begin(), state.integers.end(), is_step) && state.numbers.empty();
}

bool is_needed(const std::string& tensor, const optim::OptimizerOptions& options) {
  if (const auto* adam = dynamic_cast<const optim::AdamOptions*>(&options)) {
    return tensor != "max_exp_avg_sq" || adam->amsgrad();
  }
  if (const auto* adamw = dynamic_cast<const optim::AdamWOptions*>(&options)) {
    return tensor != "max_exp_avg_sq" || adamw->amsgrad();
  }
  if (const auto* rmsprop = dynamic_cast<const optim::RMSpropOptions*>(&options)) {
    if (tensor == "momentum_buffer") return rmsprop->momentum() > 0;
    if (tensor == "grad_avg") return rmsprop->centered();
  }
  return true;
}

ParameterState read_parameter_state(const optim::Optimizer& optimizer, const at::Tensor& parameter) {
  const optim::OptimizerParamState* const state = kept_state(optimizer, parameter);
  if (state == nullptr) return {};
  ParameterState read = read_state(*state, /*leaves_out_unknown=*/false);
  // Adagrad makes its state before the first update, a first update that is skipped on a GPU makes that of Adam.
  const auto step = read.integers.find("step");
  const StateSchema schema = state_schema(optimizer);
  if (schema.has_step && step != read.integers.end() && step->second == 0) return {};
  return read;
}

void add_optimizer_state(const optim::Optimizer& optimizer, const at::Tensor& parameter, const std::string& name,
                         HeldTensors& held) {
  const optim::OptimizerParamState* const state = kept_state(optimizer, parameter);
  if (state == nullptr) return;
  for (const auto& [what, tensor] : read_state(*state, /*leaves_out_unknown=*/true).tensors) {
    if (tensor.defined()) held.push_back({c10::str(what, " of ", name), tensor});
  }
}

optim::OptimizerParamState* find_optimizer_state(optim::Optimizer& optimizer, const at::Tensor& parameter) {
  auto& states = optimizer.state();
  using States = std::remove_reference_t<decltype(states)>;
  const auto found = states.find(key_of<typename States::key_type>(parameter));
  return found == states.end() ? nullptr : found->second.get();
}

void set_optimizer_state(optim::Optimizer& optimizer, const at::Tensor& parameter,
                         std::unique_ptr<optim::OptimizerParamState> state) {
  auto& states = optimizer.state();
  using States = std::remove_reference_t<decltype(states)>;
  states[key_of<typename States::key_type>(parameter)] = std::move(state);
}

void erase_optimizer_state(optim::Optimizer& optimizer, const at::Tensor& parameter) {
  auto& states = optimizer.state();
  using States = std::remove_reference_t<decltype(states)>;
  states.erase(key_of<typename States::key_type>(parameter));
}

void write_parameter_state(optim::Optimizer& optimizer, const at::Tensor& parameter, const ParameterState& state,
                           const OptimizerPrototype& prototype, size_t group) {
  std::unique_ptr<optim::OptimizerParamState> made;
  const StateSchema schema = state_schema(optimizer);
  const bool is_own = schema.kind == StateSchema::Kind::Elements && !has_only(schema, state);
  if (is_own) {
    made = make_serialized(prototype, group, parameter, state);
  } else if (dynamic_cast<optim::SGD*>(&optimizer) != nullptr) {
    auto sgd = std::make_unique<optim::SGDParamState>();
    sgd->momentum_buffer(tensor_or_none(state, "momentum_buffer"));
    made = std::move(sgd);
  } else if (dynamic_cast<optim::Adam*>(&optimizer) != nullptr) {
    made = make_adam<optim::AdamParamState>(state);
  } else if (dynamic_cast<optim::AdamW*>(&optimizer) != nullptr) {
    made = make_adam<optim::AdamWParamState>(state);
  } else if (dynamic_cast<optim::Adagrad*>(&optimizer) != nullptr) {
    auto adagrad = std::make_unique<optim::AdagradParamState>();
    adagrad->sum(tensor_or_none(state, "sum"));
    adagrad->step(integer_or_zero(state, "step"));
    made = std::move(adagrad);
  } else if (dynamic_cast<optim::RMSprop*>(&optimizer) != nullptr) {
    made = make_rmsprop(state);
  } else if (const auto* lbfgs = dynamic_cast<optim::LBFGS*>(&optimizer)) {
    made = make_lbfgs(state, static_cast<const optim::LBFGSOptions&>(lbfgs->param_groups()[0].options()));
  } else {
    made = make_serialized(prototype, group, parameter, state);
  }
  set_optimizer_state(optimizer, parameter, std::move(made));
}

}  // namespace lockstep::detail
