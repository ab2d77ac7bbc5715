#include <algorithm>
#include <array>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/log.h"
#include "lockstep/nn/marked_norms.h"
#include "lockstep/nn/sync_batch_norm.h"
#include "lockstep/nn/synchronised_batch_norm.h"
#include "lockstep/strategy/optimizer/tensor_mark.h"
#include "lockstep/strategy/run_replicas.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep::nn {
namespace {

using detail::NormTensors;

struct FoundNorms {
  std::vector<torch::nn::Module*> all;
  std::vector<torch::nn::Module*> plain;
};

bool is_sync_module(const torch::nn::Module& module) {
  return dynamic_cast<const SyncBatchNorm1dImpl*>(&module) != nullptr ||
         dynamic_cast<const SyncBatchNorm2dImpl*>(&module) != nullptr ||
         dynamic_cast<const SyncBatchNorm3dImpl*>(&module) != nullptr;
}

/// The layers inside a module. Throws if one cannot be recognized.
FoundNorms find_norms(torch::nn::Module& root) {
  FoundNorms found;
  root.apply([&](const std::string& name, torch::nn::Module& module) {
    const auto tensors = detail::norm_tensors(module);
    const bool is_new = std::find(found.all.begin(), found.all.end(), &module) == found.all.end();
    if (!tensors || !is_new) return;
    found.all.push_back(&module);
    if (is_sync_module(module) || detail::is_marked_norm(*tensors)) return;
    LOCKSTEP_CHECK_VALUE(tensors->running_mean.defined() || tensors->weight.defined(),
                         "[convert_sync_batch_norm] a layer without weight and without running statistics cannot be ",
                         "recognized: layer=", name.empty() ? module.name() : name,
                         ", affine=false, track_running_stats=false; use lockstep::nn::SyncBatchNorm in its place");
    found.plain.push_back(&module);
  });
  return found;
}

/// Marks tensors again that a program has put into layers, and tells what is traced and other workers that layers have
/// been converted.
class ConvertedModel final : public lockstep::detail::RunObserver {
 public:
  explicit ConvertedModel(const std::vector<std::shared_ptr<torch::nn::Module>>& replicas) {
    for (const auto& replica : replicas) {
      for (const auto& module : replica->modules()) add(module);
    }
  }

  uint64_t before_run() override {
    for (Layer& layer : layers_) {
      const auto module = layer.module.lock();
      if (module && impls_of(*module) != layer.impls) mark(layer, *module);
    }
    return kFingerprint + layers_.size();
  }

  size_t fingerprint() const override { return kFingerprint; }

  bool is_over() const {
    return std::all_of(layers_.begin(), layers_.end(), [](const Layer& layer) { return layer.module.expired(); });
  }

 private:
  static constexpr uint64_t kFingerprint = 0x5b17;
  using Impls = std::array<const c10::TensorImpl*, 4>;
  struct Layer {
    std::weak_ptr<torch::nn::Module> module;
    Impls impls;
  };

  static Impls impls_of(const torch::nn::Module& module) {
    const NormTensors tensors = *detail::norm_tensors(module);
    return {tensors.running_mean.unsafeGetTensorImpl(), tensors.running_var.unsafeGetTensorImpl(),
            tensors.weight.unsafeGetTensorImpl(), tensors.bias.unsafeGetTensorImpl()};
  }

  void add(const std::shared_ptr<torch::nn::Module>& module) {
    if (!detail::norm_tensors(*module)) return;
    layers_.push_back({module, {}});
    mark(layers_.back(), *module);
  }

  static void mark(Layer& layer, const torch::nn::Module& module) {
    detail::mark_norm(module);
    layer.impls = impls_of(module);
  }

  std::vector<Layer> layers_;
};

/// Strategies do not own their observers.
void keep(std::shared_ptr<ConvertedModel> model) {
  static std::mutex mutex;
  static auto& kept = *new std::vector<std::shared_ptr<ConvertedModel>>;
  const std::lock_guard<std::mutex> lock(mutex);
  std::erase_if(kept, [](const auto& other) { return other->is_over(); });
  kept.push_back(std::move(model));
}

}  // namespace

int64_t convert_sync_batch_norm(torch::nn::Module& module) {
  const FoundNorms found = find_norms(module);
  if (found.all.empty()) {
    LOCKSTEP_LOG(Warn) << "convert_sync_batch_norm found no BatchNorm1d, BatchNorm2d or BatchNorm3d in "
                       << module.name() << ": nothing is synchronised";
  }
  for (const torch::nn::Module* layer : found.plain) detail::mark_norm(*layer);
  return static_cast<int64_t>(found.plain.size());
}

int64_t detail::convert_sync_batch_norm(lockstep::detail::ModuleReplicas& replicas) {
  lockstep::detail::check_cross_replica(*replicas.strategy(), "convert_sync_batch_norm", "convert it before `run`");
  for (const auto& module : replicas.all()) find_norms(*module);
  int64_t converted = 0;
  for (const auto& module : replicas.all()) converted = nn::convert_sync_batch_norm(*module);
  if (converted == 0) return 0;
  for (const auto& [name, buffer] : lockstep::detail::distinct(replicas.all()[0]->named_buffers())) {
    if (lockstep::detail::BatchNormOverride::is_marked(buffer)) replicas.set_buffer_rule(name, BufferRule::First);
  }
  auto model = std::make_shared<ConvertedModel>(replicas.all());
  replicas.strategy()->observers().add(model);
  keep(std::move(model));
  return converted;
}

}  // namespace lockstep::nn
