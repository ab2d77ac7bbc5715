#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>
#include <c10/util/ArrayRef.h>

#include "lockstep/api.h"
#include "lockstep/base/error.h"
#include "lockstep/data/sources.h"
#include "lockstep/data/torch_loader.h"

/// Loaders and datasets of `torch::data` as datasets of this library.
///
/// ```
/// auto mnist = torch::data::datasets::MNIST(folder).map(Normalize<>(0.13, 0.31)).map(Stack<>());
/// auto loader = torch::data::make_data_loader(mnist, torch::data::DataLoaderOptions().batch_size(64).workers(2));
/// auto train = strategy.distribute_dataset(std::move(loader));
/// auto same = strategy.distribute_dataset(mnist, {.batch_size = 64, .shuffle = true});
/// for (auto& batch : train) strategy.run([&](const torch::data::Example<>& part) { ... }, batch);
/// ```
namespace lockstep::data {

/// How the examples of a dataset of `torch::data` are batched.
struct TorchBatchOptions {
  /// Examples of a batch, for all replicas of all workers together. Must be given.
  int64_t batch_size = 0;
  /// Whether every epoch has another random order.
  bool shuffle = false;
  /// The seed of the random order; without one it follows `torch::manual_seed`.
  std::optional<uint64_t> seed = std::nullopt;
  /// Whether a smaller last batch is dropped.
  bool drop_remainder = false;
  /// How many threads make batches, each with a copy of the dataset.
  int num_threads = 1;
};

/// A loader of `torch::data`, or a pointer that owns one (what `torch::data::make_data_loader` returns).
template <class T>
concept TorchLoader = std::is_class_v<detail::loader_of_t<T>> &&
    decltype(detail::derives_from_loader(static_cast<const detail::loader_of_t<T>*>(nullptr)))::value;

/// A dataset of `torch::data`, also a mapped one.
template <class T>
concept TorchDataset =
    std::is_class_v<T> && decltype(detail::derives_from_dataset(static_cast<const T*>(nullptr)))::value;

namespace detail {
LOCKSTEP_API void check_batch_options(const TorchBatchOptions& options);
}  // namespace detail

/// The batches of a loader of `torch::data`; every iteration restarts the loader. `loader` is the pointer that
/// `torch::data::make_data_loader` returns: moved, it belongs to the dataset; otherwise, or as a reference to the
/// loader itself, it must outlive the dataset.
///
/// One iterator at a time can read a loader; an older one throws ValueError. The order of a RandomSampler depends on
/// the epoch and on `torch::manual_seed`, and is the same on all workers. AutoShardPolicy is Data: all workers read all
/// batches, which must be equal, and each uses its part. With a DistributedSampler it is Off: every worker reads
/// examples of its own. Lists of examples, of datasets without `Stack`, are stacked.
template <class Source>
  requires TorchLoader<Source>
auto from_torch(Source&& loader) {
  using Loader = detail::loader_of_t<Source>;
  using T = typename detail::TorchBatch<typename Loader::BatchType>::type;
  auto shared = detail::shared_loader(std::forward<Source>(loader));
  const void* const address = shared.get();
  const auto batch_size = static_cast<int64_t>(shared->options().batch_size);
  auto source = std::make_shared<detail::LoaderSource<Loader>>(std::move(shared));
  const Dataset<T> batches(detail::make_torch_loader(std::move(source), address, detail::static_spec<T>(), batch_size));
  return batches.with_options(
      {.auto_shard_policy = detail::kIsSampledByWorker<Loader> ? AutoShardPolicy::Off : AutoShardPolicy::Data});
}

/// Batches of a random-access dataset of `torch::data`, also of a mapped one: what its `get_batch(indices)` returns.
/// AutoShardPolicy is Data.
template <class D>
  requires TorchDataset<D>
auto from_torch(D dataset, const TorchBatchOptions& options) {
  static_assert(
      requires { dataset.get_batch(at::ArrayRef<size_t>()); } && !D::is_stateful,
      "a stateful dataset or a stream is read by a loader: from_torch(torch::data::make_data_loader(...))");
  using Batch = detail::TorchBatch<typename D::BatchType>;
  detail::check_batch_options(options);
  const auto size = dataset.size();
  LOCKSTEP_CHECK_VALUE(size.has_value(),
                       "[from_torch] the dataset must have a size; read it with torch::data::make_data_loader");
  const auto count = static_cast<int64_t>(*size);
  Dataset<int64_t> indices = range(count);
  if (options.shuffle) indices = indices.shuffle(std::max<int64_t>(count, 1), {.seed = options.seed});
  return indices.batch(options.batch_size, {.drop_remainder = options.drop_remainder})
      .map(
          [dataset = std::move(dataset)](const at::Tensor& numbers) mutable {
            return Batch::stacked(dataset.get_batch(detail::to_indices(numbers)));
          },
          {.num_threads = options.num_threads})
      .with_options({.auto_shard_policy = AutoShardPolicy::Data});
}

}  // namespace lockstep::data
