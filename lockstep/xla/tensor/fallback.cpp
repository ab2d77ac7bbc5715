#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/xla/counters.h"
#include "lockstep/xla/tensor/lazy_storage.h"
#include "lockstep/xla/tensor/register.h"

namespace lockstep::xla {
namespace {

std::string full_name(const c10::FunctionSchema& schema) {
  return schema.overload_name().empty() ? schema.name() : schema.name() + "." + schema.overload_name();
}

void tell(const std::string& name) {
  bool first = false;
  count([&](Counters& all) {
    ++all.fallbacks;
    first = ++all.fallback_functions[name] == 1;
  });
  if (first) {
    LOCKSTEP_LOG(Warn) << name << " has no emitter for this call and runs on the CPU: its operands are fetched, its "
                       << "results sent back";
  }
}

/// Functions that fill their target whatever it holds: it need not be fetched.
bool overwrites(const std::string& name) {
  for (const char* filler : {"aten::bernoulli_", "aten::uniform_", "aten::normal_", "aten::random_",
                             "aten::exponential_", "aten::geometric_", "aten::cauchy_", "aten::log_normal_"}) {
    if (name == filler) return true;
  }
  return false;
}

/// A copy would lose what is written through the view.
void check_no_view(const c10::FunctionSchema& schema, const std::string& name) {
  for (const auto& result : schema.returns()) {
    LOCKSTEP_CHECK_IMPLEMENTED(result.alias_info() == nullptr || result.alias_info()->isWrite(), "[", name,
                               "] this view is not possible on an XLA device; clone the tensor first, or move it to ",
                               "the CPU");
  }
}

void move_to_cpu(c10::IValue& argument, bool only_shape) {
  if (argument.isTensor() && storage_of(argument.toTensor()) != nullptr) {
    const at::Tensor& tensor = argument.toTensor();
    argument = only_shape ? at::empty(tensor.sizes(), at::TensorOptions().dtype(tensor.dtype())) : to_cpu(tensor);
  } else if (argument.isTensorList()) {
    std::vector<at::Tensor> moved;
    for (const at::Tensor& tensor : argument.toTensorVector()) moved.push_back(to_cpu(tensor));
    argument = c10::IValue(moved);
  } else if (argument.isOptionalTensorList()) {
    auto moved = argument.toOptionalTensorList().copy();
    for (size_t i = 0; i < moved.size(); ++i) {
      const auto tensor = moved.get(i);
      if (tensor.has_value() && tensor->defined()) moved.set(i, to_cpu(*tensor));
    }
    argument = c10::IValue(moved);
  } else if (argument.isDevice() && argument.toDevice().type() == c10::DeviceType::XLA) {
    argument = c10::IValue(at::Device(at::kCPU));
  }
}

/// Writes what was computed to a tensor of the device; a changed size makes it another tensor.
void bring_back(const at::Tensor& target, const at::Tensor& computed, Place& place) {
  if (storage_of(target) == nullptr) return;
  if (target.sizes() == computed.sizes()) return write(target, upload(computed, place));
  const at::Tensor fresh = wrap(upload(computed, place), place);
  target.unsafeGetTensorImpl()->shallow_copy_from(fresh.getIntrusivePtr());
}

void bring_back_written(const Aliases& aliases, const std::vector<c10::IValue>& given,
                        const std::vector<c10::IValue>& computed, Place& place) {
  for (const int written : aliases.written) {
    if (given[written].isTensor()) {
      bring_back(given[written].toTensor(), computed[written].toTensor(), place);
    } else if (given[written].isTensorList()) {
      const auto targets = given[written].toTensorVector();
      const auto values = computed[written].toTensorVector();
      for (size_t i = 0; i < targets.size(); ++i) bring_back(targets[i], values[i], place);
    }
  }
}

void send_result(c10::IValue& result, Place& place) {
  if (result.isTensor() && result.toTensor().defined()) {
    result = wrap(upload(result.toTensor(), place), place);
  } else if (result.isTensorList()) {
    std::vector<at::Tensor> sent;
    for (const at::Tensor& tensor : result.toTensorVector()) sent.push_back(wrap(upload(tensor, place), place));
    result = c10::IValue(sent);
  }
}

}  // namespace

void fall_back(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const std::string name = full_name(schema);
  const size_t num_arguments = schema.arguments().size();
  const size_t first = stack->size() - num_arguments;
  check_no_view(schema, name);
  tell(name);
  Place& place = place_at(place_of_call(stack->data() + first, num_arguments));
  const Aliases aliases(schema);
  const std::vector<c10::IValue> given(stack->begin() + static_cast<int64_t>(first), stack->end());
  for (size_t i = first; i < stack->size(); ++i) move_to_cpu((*stack)[i], overwrites(schema.name()));
  const std::vector<c10::IValue> on_cpu(stack->begin() + static_cast<int64_t>(first), stack->end());
  op.callBoxed(stack);

  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  bring_back_written(aliases, given, on_cpu, place);
  const size_t first_result = stack->size() - schema.returns().size();
  for (size_t i = 0; i < schema.returns().size(); ++i) {
    c10::IValue& result = (*stack)[first_result + i];
    if (aliases.returned[i] >= 0) {
      result = given[aliases.returned[i]];
    } else {
      send_result(result, place);
    }
  }
}

}  // namespace lockstep::xla
