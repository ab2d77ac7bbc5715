#include "lockstep/device/random.h"

#include <atomic>

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/stack.h>
#include <torch/library.h>

#include "lockstep/device/carried_state.h"
#include "lockstep/device/placement.h"

namespace lockstep::detail {
namespace {

/// A dispatch key that LibTorch reserves for extensions: above autograd, off unless a thread includes it.
constexpr c10::DispatchKey kRandomMode = c10::DispatchKey::TESTING_ONLY_GenericMode;

thread_local ReplicaRandom* random_of_this_thread = nullptr;

ReplicaRandom* random_of_replica() {
  if (random_of_this_thread != nullptr) return random_of_this_thread;
  const CarriedState* const carried = carried_state();
  return carried == nullptr ? nullptr : carried->random;
}

/// The device whose generator an operation uses: that of its first tensor, else of its `device` argument, else where
/// the thread makes tensors.
c10::Device device_of_call(const c10::FunctionSchema& schema, at::ArrayRef<c10::IValue> arguments) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i].isTensor() && arguments[i].toTensor().defined()) return arguments[i].toTensor().device();
    if (schema.arguments()[i].name() == "device" && arguments[i].isDevice()) return arguments[i].toDevice();
  }
  return Placement::current().value_or(at::kCPU);
}

int generator_argument(const c10::FunctionSchema& schema) {
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    if (schema.arguments()[i].name() == "generator") return static_cast<int>(i);
  }
  return -1;
}

/// Adds the replica's generator where the caller passed none, and redispatches.
void with_replica_generator(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  c10::impl::ExcludeDispatchKeyGuard once(kRandomMode);
  const c10::FunctionSchema& schema = op.schema();
  const size_t first = stack->size() - schema.arguments().size();
  c10::IValue& argument = (*stack)[first + generator_argument(schema)];
  ReplicaRandom* const random = argument.isNone() ? random_of_replica() : nullptr;
  if (random != nullptr) {
    const auto arguments = at::ArrayRef<c10::IValue>(*stack).slice(first);
    argument = random->generator(device_of_call(schema, arguments));
  }
  op.callBoxed(stack);
}

/// Dropout on GPUs is one kernel that takes no generator, only the device's own, which all replicas on a card share. So
/// replicas make the mask by themselves.
void dropout_with_replica_generator(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  c10::impl::ExcludeDispatchKeyGuard once(kRandomMode);
  const auto arguments = at::ArrayRef<c10::IValue>(*stack).slice(stack->size() - 3);
  const at::Tensor input = arguments[0].toTensor();
  const double p = arguments[1].toDouble();
  const bool train = arguments[2].isNone() || arguments[2].toBool();
  ReplicaRandom* const random = random_of_replica();
  if (random == nullptr || !train || input.is_cpu()) return op.callBoxed(stack);
  const at::Tensor mask = at::empty_like(input, at::kBool).bernoulli_(1 - p, random->generator(input.device()));
  const at::Tensor kept = input * mask.to(input.scalar_type()).mul_(p < 1 ? 1 / (1 - p) : 0.0);
  torch::jit::drop(stack, 3);
  torch::jit::push(stack, kept, mask);
}

std::vector<torch::Library> register_kernels() {
  std::vector<torch::Library> libraries;
  libraries.emplace_back(torch::Library::IMPL, "_", kRandomMode, __FILE__, __LINE__);
  libraries.back().fallback(torch::CppFunction::makeFallthrough());
  libraries.emplace_back(torch::Library::IMPL, "aten", kRandomMode, __FILE__, __LINE__);
  for (const c10::OperatorName& name : c10::Dispatcher::singleton().getAllOpNames()) {
    const auto op = c10::Dispatcher::singleton().findSchema(name);
    if (!op || name.name.rfind("aten::", 0) != 0 || generator_argument(op->schema()) < 0) continue;
    const std::string full = name.overload_name.empty() ? name.name : name.name + "." + name.overload_name;
    libraries.back().impl(full.c_str(), torch::CppFunction::makeFromBoxedFunction<&with_replica_generator>());
  }
  libraries.back().impl("aten::native_dropout",
                        torch::CppFunction::makeFromBoxedFunction<&dropout_with_replica_generator>());
  return libraries;
}

/// Never unregisters the kernels: LibTorch's dispatcher may be destroyed before our static objects.
union NeverDestroyed {
  explicit NeverDestroyed(std::vector<torch::Library> registered) : libraries(std::move(registered)) {}
  ~NeverDestroyed() {}
  std::vector<torch::Library> libraries;
};

std::atomic<uint64_t> seedings{0};

/// LibTorch's default generator for CPUs, which `torch::manual_seed` seeds: inside a replica the call is for the
/// replica's own generator.
class DefaultGenerator final : public at::CPUGeneratorImpl {
 public:
  explicit DefaultGenerator(at::CPUGeneratorImpl& before) {
    set_engine(before.engine());
    set_next_float_normal_sample(before.next_float_normal_sample());
    set_next_double_normal_sample(before.next_double_normal_sample());
  }

  void set_current_seed(uint64_t seed) override {
    seedings.fetch_add(1, std::memory_order_relaxed);
    if (ReplicaRandom* const random = random_of_replica()) return random->set_seed(seed);
    CPUGeneratorImpl::set_current_seed(seed);
  }
};

/// Replaces LibTorch's object by one with the same state. It happens when the library is loaded, before anybody has a
/// handle of the first one.
bool replace_default_generator() {
  auto& generator = const_cast<at::Generator&>(at::detail::getDefaultCPUGenerator());
  generator = at::make_generator<DefaultGenerator>(*generator.get<at::CPUGeneratorImpl>());
  return true;
}

[[maybe_unused]] const bool kReplaced = replace_default_generator();

at::Generator new_generator(c10::Device device) {
  if (device.is_cuda()) return at::globalContext().defaultGenerator(device).clone();
  return at::make_generator<at::CPUGeneratorImpl>();
}

}  // namespace

uint64_t draw_bits(const at::Generator& generator) {
  auto* source = at::check_generator<at::CPUGeneratorImpl>(generator);
  const std::lock_guard<std::mutex> lock(source->mutex_);
  return source->random64();
}

uint64_t RunSeed::get() {
  if (drawn_.load(std::memory_order_acquire)) return seed_;
  std::lock_guard<std::mutex> lock(mutex_);
  if (!drawn_.load(std::memory_order_relaxed)) {
    seed_ = draw_bits(at::globalContext().defaultGenerator(at::kCPU));
    drawn_.store(true, std::memory_order_release);
  }
  return seed_;
}

void RunSeed::reset() { drawn_.store(false, std::memory_order_relaxed); }

uint64_t replica_seed(uint64_t run_seed, int replica) {
  uint64_t z = run_seed + 0x9e3779b97f4a7c15ULL * (static_cast<uint64_t>(replica) + 1);  // SplitMix64
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

void install_replica_random() { static const NeverDestroyed libraries{register_kernels()}; }

ReplicaRandom::ReplicaRandom(RunSeed& seed, int replica, at::Generator on_gpu)
    : seed_(seed), replica_(replica), before_(random_of_this_thread), include_(kRandomMode) {
  if (on_gpu.defined()) generators_.emplace_back(c10::DeviceType::CUDA, std::move(on_gpu));
  random_of_this_thread = this;
}

ReplicaRandom::~ReplicaRandom() { random_of_this_thread = before_; }

const at::Generator& ReplicaRandom::generator(c10::Device device) {
  const c10::DeviceType type = device.is_cuda() ? device.type() : c10::DeviceType::CPU;
  for (const auto& [made_for, generator] : generators_) {
    if (made_for == type) return generator;
  }
  used_seed_ = used_seed_ || !own_seed_;
  generators_.emplace_back(type, new_generator(device));
  generators_.back().second.set_current_seed(own_seed_ ? *own_seed_ : replica_seed(seed_.get(), replica_));
  return generators_.back().second;
}

void ReplicaRandom::set_seed(uint64_t seed) {
  own_seed_ = seed;
  generators_.clear();
}

ReplicaRandom* ReplicaRandom::current() { return random_of_replica(); }

uint64_t num_seedings() { return seedings.load(std::memory_order_relaxed); }

}  // namespace lockstep::detail
