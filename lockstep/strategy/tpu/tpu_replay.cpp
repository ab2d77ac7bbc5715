#include "lockstep/strategy/tpu/tpu_replay.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>

#include "lockstep/device/random.h"
#include "lockstep/xla/tensor/lazy_storage.h"

namespace lockstep::detail {
namespace {

template <class Number>
void append(std::string& text, Number number) {
  text.append(reinterpret_cast<const char*>(&number), sizeof(number));
}

/// The seeds that a run of the function draws: from the replica's own generator, or from LibTorch's with one replica.
class RunSeeds {
 public:
  explicit RunSeeds(int num_replicas) : num_replicas_(num_replicas) {}

  std::vector<int64_t> draw(int replica, int64_t count) {
    at::Generator generator = at::globalContext().defaultGenerator(at::kCPU);
    if (num_replicas_ > 1) {
      generator = at::make_generator<at::CPUGeneratorImpl>();
      generator.set_current_seed(replica_seed(run_.get(), replica));
    }
    std::vector<int64_t> seeds;
    for (int64_t i = 0; i < count; ++i) seeds.push_back(static_cast<int64_t>(draw_bits(generator)));
    return seeds;
  }

 private:
  int num_replicas_;
  RunSeed run_;
};

}  // namespace

std::recursive_mutex& tpu_run_mutex() {
  static std::recursive_mutex mutex;
  return mutex;
}

StepReplay::Tensors TPUReplay::placed(const Tensors& arguments) {
  Tensors placed = arguments;
  for (size_t replica = 0; replica < placed.size(); ++replica) {
    const c10::Device device = strategy_.devices()[replica].torch_device;
    for (at::Tensor& tensor : placed[replica]) {
      if (tensor.defined() && tensor.device() != device) tensor = tensor.to(device);
    }
  }
  return placed;
}

xla::Replay& TPUReplay::find(const Tensors& arguments, const std::string& other_arguments) {
  std::string key = other_arguments;
  append(key, strategy_.observe_run());
  for (const auto& of_replica : arguments) {
    for (const at::Tensor& tensor : of_replica) {
      append(key, tensor.scalar_type());
      append(key, tensor.requires_grad());
      for (const int64_t size : tensor.sizes()) append(key, size);
      append(key, ';');
    }
  }
  std::unique_ptr<xla::Replay>& step = steps_[key];
  if (!step) step = std::make_unique<xla::Replay>(devices_);
  return *step;
}

bool TPUReplay::replay(const Tensors& arguments, const std::string& other_arguments, Tensors& results) {
  if (!refusal_.empty()) return false;
  const std::lock_guard<std::recursive_mutex> turn(tpu_run_mutex());
  current_ = &find(arguments, other_arguments);
  if (!current_->is_ready()) return false;
  RunSeeds seeds(strategy_.num_replicas_in_sync());
  const auto draw = [&](int replica, int64_t count) { return seeds.draw(replica, count); };
  if (current_->replay(arguments, draw, results)) {
    strategy_.observe_run_end();
    strategy_.check_replicas_after_replay();
    return true;
  }
  current_->forget("state was replaced, or the caller has a tensor over its memory");
  return false;
}

void TPUReplay::begin_run(const Tensors& arguments, const std::string& other_arguments) {
  turn_.emplace(tpu_run_mutex());
  current_ = &find(arguments, other_arguments);
  seedings_ = num_seedings();
  current_->begin_trace(arguments);
}

void TPUReplay::end_run(const Tensors& results) {
  current_->end_trace(results);
  if (num_seedings() != seedings_) refuse("it calls torch::manual_seed");
  turn_.reset();
}

void TPUReplay::run_failed() {
  current_->abandon_trace();
  turn_.reset();
}

at::Tensor TPUReplay::without_view(const at::Tensor& result) {
  const xla::LazyStorage* storage = xla::storage_of(result);
  if (storage == nullptr) return result;
  const bool is_whole =
      result.storage_offset() == 0 && result.is_contiguous() && result.sizes() == xla::Ints(storage->value()->shape);
  return is_whole ? result : result.clone();
}

std::string TPUReplay::why_not() const {
  if (!refusal_.empty()) return refusal_;
  return current_ == nullptr ? "it has not been called yet" : current_->why_not();
}

}  // namespace lockstep::detail
