#include "lockstep/strategy/optimizer/module_structure.h"

#include <algorithm>

#include <ATen/ATen.h>
#include <torch/nn/modules/embedding.h>

#include "lockstep/base/dtype_name.h"
#include "lockstep/base/error.h"
#include "lockstep/base/hash.h"
#include "lockstep/strategy/optimizer/tensor_mark.h"
#include "lockstep/strategy/strategy_impl.h"

namespace lockstep::detail {
namespace {

using NamedDict = torch::OrderedDict<std::string, at::Tensor>;

constexpr const char* kAdvice = "; the function that makes a module must make the same one for every replica";

std::string shape_of(const at::Tensor& tensor) { return c10::str(dtype_name(tensor.scalar_type()), tensor.sizes()); }

void check_has_all(const char* what, const NamedDict& of_some, const NamedDict& of_others, const std::string& without) {
  for (const auto& item : of_some) {
    LOCKSTEP_CHECK_VALUE(of_others.contains(item.key()), "[module] every replica must have the same ", what,
                         "s: ", what, "=", item.key(), " is missing on ", without, kAdvice);
  }
}

/// The position of the first tensor that is the same as the one at `index`.
size_t first_place(const NamedDict& tensors, size_t index) {
  size_t place = 0;
  while (!tensors[place].value().is_same(tensors[index].value())) ++place;
  return place;
}

void check_tensors_alike(const char* what, const NamedDict& first, const NamedDict& other, const std::string& replica) {
  check_has_all(what, first, other, replica);
  check_has_all(what, other, first, "replica 0");
  for (size_t i = 0; i < first.size(); ++i) {
    const at::Tensor& a = first[i].value();
    const at::Tensor& b = other[i].value();
    LOCKSTEP_CHECK_VALUE(first[i].key() == other[i].key(), "[module] every replica must have the same ", what,
                         "s in the same order: ", what, "=", first[i].key(), " of replica 0 is ", other[i].key(),
                         " on ", replica, kAdvice);
    LOCKSTEP_CHECK_VALUE(a.sizes() == b.sizes() && a.scalar_type() == b.scalar_type(),
                         "[module] every replica must have the same ", what, "s: ", what, "=", first[i].key(),
                         ", replica 0 has ", shape_of(a), ", ", replica, " has ", shape_of(b), kAdvice);
    LOCKSTEP_CHECK_VALUE(first_place(first, i) == first_place(other, i), "[module] two names of a ", what,
                         " must be one tensor on all replicas or on none: ", what, "=", first[i].key(),
                         ", other=", replica, "; make the module in module_from's function, instead of cloning one");
  }
}

/// For each parameter and buffer a hash of its name, shape and dtype.
std::vector<int64_t> structure_of(const torch::nn::Module& module, std::vector<std::string>& names) {
  std::vector<int64_t> hashes;
  for (const auto& tensors : {module.named_parameters(), module.named_buffers()}) {
    for (const auto& item : tensors) {
      const std::string text = item.key() + ": " + shape_of(item.value());
      names.push_back(text);
      hashes.push_back(static_cast<int64_t>(mix_hash(1, text.data(), text.size())));
    }
  }
  return hashes;
}

template <class Embedding>
void check_without_max_norm(const std::string& name, const torch::nn::Module& module) {
  const auto* const embedding = module.as<Embedding>();
  LOCKSTEP_CHECK_IMPLEMENTED(embedding == nullptr || !embedding->options.max_norm(),
                             "[module] an embedding with max_norm writes to its table when it is read, so that ",
                             "replicas would have different tables: module=", name.empty() ? module.name() : name,
                             ", max_norm=", *embedding->options.max_norm(),
                             "; leave max_norm out and scale the rows outside of `run`, or use one replica");
}

}  // namespace

void check_alike(const torch::nn::Module& first, const torch::nn::Module& other, int replica) {
  const std::string name = c10::str("replica ", replica);
  check_tensors_alike("parameter", first.named_parameters(), other.named_parameters(), name);
  check_tensors_alike("buffer", first.named_buffers(), other.named_buffers(), name);
}

void check_alike_on_workers(const StrategyImpl& strategy, const torch::nn::Module& module) {
  if (strategy.num_workers() == 1) return;
  std::vector<std::string> names;
  std::vector<int64_t> own = structure_of(module, names);
  const auto gathered = [&](std::vector<int64_t>& values) {
    return strategy.worker_group()->all_gather(
        at::from_blob(values.data(), {1, static_cast<int64_t>(values.size())}, at::kLong), 0);
  };
  uint64_t all = own.size();
  for (const int64_t hash : own) all = mix_hash(all, static_cast<uint64_t>(hash));
  std::vector<int64_t> summary{static_cast<int64_t>(own.size()), static_cast<int64_t>(all)};
  const at::Tensor summaries = gathered(summary);
  if (summaries.eq(summaries[0]).all().item<bool>()) return;
  const at::Tensor counts = summaries.select(1, 0);
  LOCKSTEP_CHECK_VALUE(counts.eq(counts[0]).all().item<bool>(),
                       "[module] every worker must make the same module: worker 0 has ", counts[0].item<int64_t>(),
                       " parameters and buffers, this is worker ", strategy.worker(), " with ", own.size());
  const at::Tensor hashes = gathered(own);
  for (size_t i = 0; i < own.size(); ++i) {
    const at::Tensor of_tensor = hashes.select(1, static_cast<int64_t>(i));
    LOCKSTEP_CHECK_VALUE(of_tensor.eq(of_tensor[0]).all().item<bool>(),
                         "[module] every worker must make the same module: workers differ in parameter or buffer ", i,
                         ", which is ", names[i], " on worker ", strategy.worker(), kAdvice);
  }
}

void check_only_reads_parameters(const StrategyImpl& strategy, const torch::nn::Module& module) {
  if (strategy.num_replicas_in_sync() == 1) return;
  for (const auto& item : module.named_modules()) {
    check_without_max_norm<torch::nn::EmbeddingImpl>(item.key(), *item.value());
    check_without_max_norm<torch::nn::EmbeddingBagImpl>(item.key(), *item.value());
  }
}

}  // namespace lockstep::detail
