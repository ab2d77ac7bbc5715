#include <ATen/ATen.h>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/device/placement.h"
#include "lockstep/xla/counters.h"
#include "lockstep/xla/dispatch/register.h"
#include "lockstep/xla/tensor/lazy_storage.h"

namespace lockstep::xla {
namespace {

std::string full_name(const c10::FunctionSchema& schema) {
  return schema.overload_name().empty() ? schema.name() : schema.name() + "." + schema.overload_name();
}

void report_fallback(const std::string& name) {
  bool first = false;
  count([&](Counters& all) {
    ++all.fallbacks;
    first = ++all.fallback_functions[name] == 1;
  });
  if (first) {
    LOCKSTEP_LOG(Warn) << name << " has no lowering for this call and runs on the CPU: operands are downloaded, "
                       << "results are uploaded";
  }
}

/// Functions that overwrite their target: it is not downloaded.
bool overwrites(const std::string& name) {
  for (const char* filler : {"aten::bernoulli_", "aten::uniform_", "aten::normal_", "aten::random_",
                             "aten::exponential_", "aten::geometric_", "aten::cauchy_", "aten::log_normal_"}) {
    if (name == filler) return true;
  }
  return false;
}

/// A copy in place of a view would lose writes through the view.
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

/// Writes a computed tensor to one of the device; if the size has changed, the target becomes another tensor.
void upload_to(const at::Tensor& target, const at::Tensor& computed, XlaDevice& device) {
  if (storage_of(target) == nullptr) return;
  if (target.sizes() == computed.sizes()) return write(target, upload(computed, device));
  const at::Tensor fresh = wrap(upload(computed, device), device);
  target.unsafeGetTensorImpl()->shallow_copy_from(fresh.getIntrusivePtr());
}

void upload_written(const Aliases& aliases, const std::vector<c10::IValue>& given,
                    const std::vector<c10::IValue>& computed, XlaDevice& device) {
  for (const int written : aliases.written) {
    if (given[written].isTensor()) {
      upload_to(given[written].toTensor(), computed[written].toTensor(), device);
    } else if (given[written].isTensorList()) {
      const auto targets = given[written].toTensorVector();
      const auto values = computed[written].toTensorVector();
      for (size_t i = 0; i < targets.size(); ++i) upload_to(targets[i], values[i], device);
    }
  }
}

void upload_result(c10::IValue& result, XlaDevice& device) {
  if (result.isTensor() && result.toTensor().defined()) {
    result = wrap(upload(result.toTensor(), device), device);
  } else if (result.isTensorList()) {
    std::vector<at::Tensor> sent;
    for (const at::Tensor& tensor : result.toTensorVector()) sent.push_back(wrap(upload(tensor, device), device));
    result = c10::IValue(sent);
  }
}

}  // namespace

void fall_back(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const lockstep::detail::NoPlacement for_itself;
  const c10::FunctionSchema& schema = op.schema();
  const std::string name = full_name(schema);
  const size_t num_arguments = schema.arguments().size();
  const size_t first = stack->size() - num_arguments;
  check_no_view(schema, name);
  report_fallback(name);
  XlaDevice& device = device_at(device_index_of(stack->data() + first, num_arguments));
  const Aliases aliases(schema);
  const std::vector<c10::IValue> given(stack->begin() + static_cast<int64_t>(first), stack->end());
  for (size_t i = first; i < stack->size(); ++i) move_to_cpu((*stack)[i], overwrites(schema.name()));
  const std::vector<c10::IValue> on_cpu(stack->begin() + static_cast<int64_t>(first), stack->end());
  op.callBoxed(stack);

  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  upload_written(aliases, given, on_cpu, device);
  const size_t first_result = stack->size() - schema.returns().size();
  for (size_t i = 0; i < schema.returns().size(); ++i) {
    c10::IValue& result = (*stack)[first_result + i];
    if (aliases.returned[i] >= 0) {
      result = given[aliases.returned[i]];
    } else {
      upload_result(result, device);
    }
  }
}

}  // namespace lockstep::xla
