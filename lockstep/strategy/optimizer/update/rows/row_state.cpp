#include "lockstep/strategy/optimizer/update/rows/row_state.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <sys/mman.h>
#include <typeinfo>

#include <ATen/ATen.h>
#include <torch/optim/adagrad.h>
#include <torch/optim/adam.h>
#include <torch/optim/adamw.h>
#include <torch/optim/rmsprop.h>
#include <torch/optim/sgd.h>

#include "lockstep/base/error.h"

namespace lockstep::detail {
namespace {

namespace optim = torch::optim;

template <class State, class Options>
StateFields adam_fields(State& state, const Options& options) {
  return {{&state.exp_avg(), &state.exp_avg_sq(), options.amsgrad() ? &state.max_exp_avg_sq() : nullptr},
          &state.step()};
}

StateFields rmsprop_fields(optim::RMSpropParamState& state, const optim::RMSpropOptions& options) {
  return {{&state.square_avg(), options.momentum() > 0 ? &state.momentum_buffer() : nullptr,
           options.centered() ? &state.grad_avg() : nullptr},
          &state.step()};
}

StateFields sgd_fields(optim::SGDParamState& state, const optim::SGDOptions& options) {
  return {{options.momentum() != 0 ? &state.momentum_buffer() : nullptr}, nullptr};
}

}  // namespace

at::Tensor lazy_zeros(at::IntArrayRef sizes, at::ScalarType dtype) {
  const auto bytes = static_cast<size_t>(c10::multiply_integers(sizes)) * c10::elementSize(dtype);
  if (bytes == 0) return at::zeros(sizes, at::device(at::kCPU).dtype(dtype));
  void* const memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  LOCKSTEP_CHECK_VALUE(memory != MAP_FAILED,
                       "[optimizer] there must be address space for the state of a table: bytes=", bytes,
                       ", error=", std::strerror(errno));
  // The first row in a huge page would allocate all of it. Fails where the system has no huge pages, which is fine.
  static_cast<void>(::madvise(memory, bytes, MADV_NOHUGEPAGE));
  return at::from_blob(
      memory, sizes, [bytes](void* at) { ::munmap(at, bytes); }, at::TensorOptions().dtype(dtype));
}

UpdateRule update_rule(const optim::Optimizer& optimizer) {
  const std::type_info& type = typeid(optimizer);
  if (type == typeid(optim::SGD)) return UpdateRule::Sgd;
  if (type == typeid(optim::Adam)) return UpdateRule::Adam;
  if (type == typeid(optim::AdamW)) return UpdateRule::AdamW;
  if (type == typeid(optim::Adagrad)) return UpdateRule::Adagrad;
  if (type == typeid(optim::RMSprop)) return UpdateRule::Rmsprop;
  return UpdateRule::Unknown;
}

StateFields state_fields(UpdateRule rule, optim::OptimizerParamState& state, const optim::OptimizerOptions& options) {
  switch (rule) {
    case UpdateRule::Sgd:
      return sgd_fields(static_cast<optim::SGDParamState&>(state), static_cast<const optim::SGDOptions&>(options));
    case UpdateRule::Adam:
      return adam_fields(static_cast<optim::AdamParamState&>(state), static_cast<const optim::AdamOptions&>(options));
    case UpdateRule::AdamW:
      return adam_fields(static_cast<optim::AdamWParamState&>(state), static_cast<const optim::AdamWOptions&>(options));
    case UpdateRule::Adagrad: {
      auto& adagrad = static_cast<optim::AdagradParamState&>(state);
      return {{&adagrad.sum()}, &adagrad.step()};
    }
    case UpdateRule::Rmsprop:
      return rmsprop_fields(static_cast<optim::RMSpropParamState&>(state),
                            static_cast<const optim::RMSpropOptions&>(options));
    case UpdateRule::Unknown:
      break;
  }
  LOCKSTEP_ASSERT(false, "optimizer of unknown state");
}

std::unique_ptr<optim::OptimizerParamState> empty_state(UpdateRule rule) {
  switch (rule) {
    case UpdateRule::Sgd:
      return std::make_unique<optim::SGDParamState>();
    case UpdateRule::Adam:
      return std::make_unique<optim::AdamParamState>();
    case UpdateRule::AdamW:
      return std::make_unique<optim::AdamWParamState>();
    case UpdateRule::Adagrad:
      return std::make_unique<optim::AdagradParamState>();
    case UpdateRule::Rmsprop:
      return std::make_unique<optim::RMSpropParamState>();
    case UpdateRule::Unknown:
      break;
  }
  LOCKSTEP_ASSERT(false, "optimizer of unknown state");
}

RowState::RowState(const optim::Optimizer& optimizer, at::IntArrayRef sizes, at::ScalarType dtype,
                   MakeMemory make_memory)
    : rule_(update_rule(optimizer)), sizes_(sizes.vec()), dtype_(dtype), make_memory_(std::move(make_memory)) {
  if (rule_ == UpdateRule::Adagrad) {
    untouched_ = static_cast<const optim::AdagradOptions&>(optimizer.defaults()).initial_accumulator_value();
  }
}

void RowState::begin_step(const optim::OptimizerOptions& options) {
  options_ = options.clone();
  ++steps_;
  const auto scratch = empty_state(rule_);
  const StateFields fields = state_fields(rule_, *scratch, *options_);
  for (int i = 0; i < StateFields::kMax; ++i) {
    used_[i] = fields.tensors[i] != nullptr;
    if (!used_[i] || memory_[i].defined()) continue;
    memory_[i] = make_memory_ ? make_memory_(i, sizes_, dtype_) : lazy_zeros(sizes_, dtype_);
    // LibTorch's first step with momentum does not dampen the gradient.
    if (rule_ == UpdateRule::Sgd) static_cast<optim::SGDOptions&>(*options_).dampening(0);
  }
}

void RowState::load(int64_t steps, std::array<at::Tensor, StateFields::kMax> memory) {
  steps_ = steps;
  memory_ = std::move(memory);
}

uint64_t untouched_bits(double untouched, at::ScalarType dtype) {
  const at::Tensor value = at::scalar_tensor(untouched, dtype);
  uint64_t bits = 0;
  std::memcpy(&bits, value.data_ptr(), value.nbytes());
  return bits;
}

int RowState::num_used() const { return static_cast<int>(std::count(used_.begin(), used_.end(), true)); }

}  // namespace lockstep::detail
