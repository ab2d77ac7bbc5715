#include "lockstep/xla/dispatch/register.h"

#include <deque>
#include <map>
#include <mutex>
#include <set>

#include <c10/core/impl/VirtualGuardImpl.h>

#include "lockstep/device/placement.h"
#include "lockstep/xla/counters.h"
#include "lockstep/xla/graph/origin.h"
#include "lockstep/xla/lower/lowering.h"
#include "lockstep/xla/tensor/lazy_storage.h"

namespace lockstep::xla {
namespace {

using torch::jit::Stack;

/// A copy of the string that lives as long as the process.
const char* keep_forever(const std::string& text) {
  static auto& kept = *new std::set<std::string>;
  return kept.insert(text).first->c_str();
}

/// Calls a lowering and returns its values as tensors, or writes them to the arguments that the schema names.
class Traced final : public c10::OperatorKernel {
 public:
  Traced(const Lowering& lowering, const c10::FunctionSchema& schema, bool gives_results)
      : lowering_(lowering),
        aliases_(schema),
        origin_(keep_forever(schema.name())),
        num_arguments_(schema.arguments().size()),
        resizes_(gives_results) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
    const OriginGuard origin(origin_);
    const lockstep::detail::NoPlacement for_itself;
    c10::IValue* arguments = stack->data() + stack->size() - num_arguments_;
    const AtenCall call(arguments, device_index_of(arguments, num_arguments_));
    if (lowering_.covers != nullptr && !lowering_.covers(call)) return fall_back(op, stack);
    detail::count_traced();
    XlaDevice& device = device_at(call.device_index());
    check_may_compute(device);
    device.note(origin_);
    if (is_backward_thread()) device.note_backward();
    Values values = lowering_.emit(call);
    c10::SmallVector<at::Tensor, 3> results;
    for (size_t i = 0; i < values.size(); ++i) {
      const int written = i < aliases_.returned.size() ? aliases_.returned[i] : -1;
      results.push_back(written >= 0 ? store(call, written, std::move(values[i])) : made(call, std::move(values[i])));
    }
    stack->resize(stack->size() - num_arguments_);
    for (at::Tensor& result : results) stack->emplace_back(std::move(result));
  }

 private:
  static at::Tensor made(const AtenCall& call, Value value) {
    return value ? wrap(std::move(value), device_at(call.device_index())) : at::Tensor();
  }

  at::Tensor store(const AtenCall& call, int argument, Value value) const {
    const at::Tensor& target = call.tensor(argument);
    if (resizes_ && target.sizes() != Ints(value->shape)) {
      const at::Tensor fresh = wrap(convert(std::move(value), target.scalar_type()), device_at(call.device_index()));
      target.unsafeGetTensorImpl()->shallow_copy_from(fresh.getIntrusivePtr());
    } else {
      write(target, std::move(value));
    }
    return target;
  }

  Lowering lowering_;
  Aliases aliases_;
  const char* origin_;
  size_t num_arguments_;
  bool resizes_;
};

/// Whether the arguments of `function` begin with those of `other`.
bool begins_with(const c10::FunctionSchema& function, const c10::FunctionSchema& other) {
  const auto& arguments = function.arguments();
  const auto& first = other.arguments();
  if (arguments.size() < first.size()) return false;
  for (size_t i = 0; i < first.size(); ++i) {
    if (first[i].name() != arguments[i].name()) return false;
    if (first[i].type()->kind() != arguments[i].type()->kind()) return false;
  }
  return true;
}

/// Whether `out` is the form of `functional` with output arguments: the same arguments, then one for each result.
bool is_out_form(const c10::FunctionSchema& functional, const c10::FunctionSchema& out) {
  const size_t size = functional.arguments().size() + functional.returns().size();
  return out.arguments().size() == size && out.arguments().back().is_out() && begins_with(out, functional);
}

/// Whether LibTorch composes the function of others above autograd: a kernel would hide its derivative. The exception
/// makes a sparse tensor, which XLA devices do not have.
bool is_composite(const c10::OperatorHandle& op) {
  return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
         op.schema().name() != "aten::embedding_sparse_backward";
}

class Registrations {
 public:
  void add_all() {
    auto& dispatcher = c10::Dispatcher::singleton();
    handles_.push_back(dispatcher.registerFallback(
        c10::DispatchKey::XLA, c10::KernelFunction::makeFromBoxedFunction<&fall_back>(), "lockstep"));
    std::map<std::string, std::vector<c10::OperatorName>> overloads;
    for (const c10::OperatorName& name : dispatcher.getAllOpNames()) overloads[name.name].push_back(name);
    for (const Lowering& lowering : all_lowerings()) add(lowering, overloads);
    for (const SpecialKernel& kernel : special_kernels()) add(kernel);
    for (const SpecialKernel& kernel : recurrent_kernels()) add_above_autograd(kernel);
  }

 private:
  void add(const Lowering& lowering, std::map<std::string, std::vector<c10::OperatorName>>& overloads) {
    const std::string full = lowering.name;
    const size_t dot = full.find('.');
    const std::string name = "aten::" + full.substr(0, dot);
    const std::string overload = dot == std::string::npos ? "" : full.substr(dot + 1);
    auto& dispatcher = c10::Dispatcher::singleton();
    const auto functional = dispatcher.findSchema({name, overload});
    if (!functional) return;  // a function of another version of LibTorch
    add(lowering, *functional, false);
    const auto in_place = dispatcher.findSchema({name + "_", overload});
    if (in_place && begins_with(in_place->schema(), functional->schema())) add(lowering, *in_place, false);
    for (const c10::OperatorName& other : overloads[name]) {
      const auto op = dispatcher.findSchema(other);
      if (is_out_form(functional->schema(), op->schema())) add(lowering, *op, true);
    }
  }

  void add(const Lowering& lowering, const c10::OperatorHandle& op, bool gives_results) {
    auto kernel = std::make_unique<Traced>(lowering, op.schema(), gives_results);
    add(op, c10::KernelFunction::makeFromBoxedFunctor<Traced>(std::move(kernel)));
  }

  void add(const SpecialKernel& kernel) {
    const auto op = c10::Dispatcher::singleton().findSchema({std::string("aten::") + kernel.name, kernel.overload});
    if (op) add(*op, c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<Special>(kernel.run)));
  }

  /// For tensors of the device with and without autograd (inference mode).
  void add_above_autograd(const SpecialKernel& kernel) {
    const auto op = c10::Dispatcher::singleton().findSchema({std::string("aten::") + kernel.name, kernel.overload});
    if (!op) return;
    for (const c10::DispatchKey key : {c10::DispatchKey::AutogradXLA, c10::DispatchKey::XLA}) {
      handles_.push_back(c10::Dispatcher::singleton().registerImpl(
          op->operator_name(), key, c10::KernelFunction::makeFromBoxedFunctor(std::make_unique<Composed>(kernel.run)),
          {}, nullptr, "lockstep"));
    }
  }

  /// If two rows lead to one function, for example as the in-place form of the other, the first one counts.
  void add(const c10::OperatorHandle& op, c10::KernelFunction function) {
    if (is_composite(op)) return;
    if (!registered_.insert(toString(op.operator_name())).second) return;
    handles_.push_back(c10::Dispatcher::singleton().registerImpl(op.operator_name(), c10::DispatchKey::XLA,
                                                                 std::move(function), {}, nullptr, "lockstep"));
  }

  struct Special final : c10::OperatorKernel {
    explicit Special(void (*run)(const c10::OperatorHandle&, Stack*)) : run(run) {}
    void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) {
      const OriginGuard origin(op.schema().name().c_str());
      const lockstep::detail::NoPlacement for_itself;
      detail::count_traced();
      run(op, stack);
    }
    void (*run)(const c10::OperatorHandle&, Stack*);
  };

  /// Calls other functions of LibTorch, which are traced.
  struct Composed final : c10::OperatorKernel {
    explicit Composed(void (*run)(const c10::OperatorHandle&, Stack*)) : run(run) {}
    void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, Stack* stack) { run(op, stack); }
    void (*run)(const c10::OperatorHandle&, Stack*);
  };

  std::set<std::string> registered_;
  std::deque<c10::RegistrationHandleRAII> handles_;
};

}  // namespace

Aliases::Aliases(const c10::FunctionSchema& schema) {
  const auto& arguments = schema.arguments();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const auto* alias = arguments[i].alias_info();
    if (alias != nullptr && alias->isWrite()) written.push_back(static_cast<int>(i));
  }
  for (const auto& result : schema.returns()) {
    const auto* alias = result.alias_info();
    int same = -1;
    for (const int argument : written) {
      const bool is_same =
          alias != nullptr && alias->isWrite() && arguments[argument].alias_info()->beforeSets() == alias->beforeSets();
      if (is_same) same = argument;
    }
    returned.push_back(same);
  }
}

int device_index_of(const c10::IValue* arguments, size_t count) {
  const auto is_lazy = [](const at::Tensor& tensor) {
    return tensor.defined() && tensor.device().type() == c10::DeviceType::XLA;
  };
  for (size_t i = 0; i < count; ++i) {
    const c10::IValue& argument = arguments[i];
    if (argument.isTensor()) {
      if (is_lazy(argument.toTensor())) return argument.toTensor().device().index();
    } else if (argument.isTensorList()) {
      for (const at::Tensor& tensor : argument.toTensorVector()) {
        if (is_lazy(tensor)) return tensor.device().index();
      }
    } else if (argument.isDevice() && argument.toDevice().type() == c10::DeviceType::XLA) {
      if (argument.toDevice().has_index()) return argument.toDevice().index();
    }
  }
  return c10::impl::VirtualGuardImpl(c10::DeviceType::XLA).getDevice().index();
}

void register_device() {
  static auto* const all = new Registrations;
  static std::once_flag once;
  std::call_once(once, [] { all->add_all(); });
}

}  // namespace lockstep::xla
