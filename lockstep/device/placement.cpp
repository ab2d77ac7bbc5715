#include "lockstep/device/placement.h"

#include <array>
#include <utility>
#include <vector>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

#include "lockstep/device/carried_state.h"
#include "lockstep/device/logical_devices.h"

namespace lockstep::detail {
namespace {

/// Functions without tensors among their arguments. Those that this version of LibTorch lacks are skipped.
constexpr std::array kFactories{
    "arange",
    "arange.start",
    "arange.start_step",
    "bartlett_window",
    "bartlett_window.periodic",
    "blackman_window",
    "blackman_window.periodic",
    "empty.memory_format",
    "eye",
    "eye.m",
    "full",
    "hamming_window",
    "hamming_window.periodic",
    "hann_window",
    "hann_window.periodic",
    "kaiser_window",
    "kaiser_window.periodic",
    "linspace",
    "logspace",
    "normal.float_float",
    "ones",
    "rand",
    "rand.generator",
    "randint",
    "randint.generator",
    "randint.low",
    "randint.low_generator",
    "randn",
    "randn.generator",
    "randperm",
    "randperm.generator",
    "range",
    "range.step",
    "tril_indices",
    "triu_indices",
    "zeros",
};

thread_local const Placement::Place* place_of_this_thread = nullptr;

/// The arguments of one call, by name.
class FactoryArguments {
 public:
  FactoryArguments(const c10::FunctionSchema& schema, torch::jit::Stack& stack)
      : schema_(schema), first_(stack.data() + stack.size() - schema.arguments().size()) {}

  /// Null if the function has no such argument, or if the caller gave none.
  c10::IValue* given(const char* name) const {
    c10::IValue* value = find(name);
    return value == nullptr || value->isNone() ? nullptr : value;
  }

  c10::IValue* find(const char* name) const {
    for (size_t i = 0; i < schema_.arguments().size(); ++i) {
      if (schema_.arguments()[i].name() == name) return first_ + i;
    }
    return nullptr;
  }

 private:
  const c10::FunctionSchema& schema_;
  c10::IValue* first_;
};

/// Whether the caller chose the CPU in another way than by a device.
bool is_for_cpu(const c10::OperatorHandle& op, const FactoryArguments& arguments, c10::Device place) {
  const c10::IValue* pinned = arguments.given("pin_memory");
  if (pinned != nullptr && pinned->toBool()) return true;
  const c10::IValue* generator = arguments.given("generator");
  if (generator != nullptr && place.is_cuda() && generator->toGenerator().device().is_cpu()) return true;
  // `at::empty` allocates memory that LibTorch itself writes to, in `at::tensor` for example. `torch::empty`, which
  // users and modules call, excludes this key.
  return op.schema().name() == "aten::empty" &&
         !c10::impl::tls_is_dispatch_key_excluded(c10::DispatchKey::ADInplaceOrView);
}

void make_in_place(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
  const NoPlacement once;
  const FactoryArguments arguments(op.schema(), *stack);
  c10::IValue* device = arguments.find("device");
  if (device != nullptr && device->isNone()) {
    const bool is_missing = place_of_this_thread != nullptr && !place_of_this_thread->missing.empty();
    if (is_missing) find_logical_device(place_of_this_thread->missing);
    const auto place = Placement::current();
    if (place && !is_for_cpu(op, arguments, *place)) *device = *place;
  }
  op.callBoxed(stack);
}

/// Never destroyed: threads may still call the functions when the process ends.
std::vector<torch::Library>& register_factories() {
  static auto* const libraries = new std::vector<torch::Library>;
  libraries->reserve(2);
  libraries->emplace_back(torch::Library::IMPL, "_", kPlacementKey, __FILE__, __LINE__);
  libraries->back().fallback(torch::CppFunction::makeFallthrough());
  libraries->emplace_back(torch::Library::IMPL, "aten", kPlacementKey, __FILE__, __LINE__);
  for (const std::string name : kFactories) {
    const size_t dot = name.find('.');
    const c10::OperatorName full("aten::" + name.substr(0, dot), dot == std::string::npos ? "" : name.substr(dot + 1));
    if (!c10::Dispatcher::singleton().findSchema(full)) continue;
    libraries->back().impl(name.c_str(), torch::CppFunction::makeFromBoxedFunction<&make_in_place>());
  }
  return *libraries;
}

}  // namespace

void Placement::prepare() { [[maybe_unused]] static const auto& libraries = register_factories(); }

std::optional<c10::Device> Placement::current() {
  if (place_of_this_thread != nullptr) return place_of_this_thread->device;
  const CarriedState* const carried = carried_state();
  return carried == nullptr ? std::nullopt : carried->place;
}

Placement::Placement(std::optional<c10::Device> device) : before_(place_of_this_thread) {
  if (device && !device->is_cpu()) place_.device = device;
  enter();
}

Placement::Placement(const std::string& missing_device) : before_(place_of_this_thread) {
  place_.missing = missing_device;
  enter();
}

void Placement::enter() {
  const bool has_place = place_.device || !place_.missing.empty();
  place_of_this_thread = has_place ? &place_ : nullptr;
  if (!has_place) return;
  prepare();
  guard_.emplace(kPlacementKey);
}

Placement::~Placement() { place_of_this_thread = before_; }

}  // namespace lockstep::detail
