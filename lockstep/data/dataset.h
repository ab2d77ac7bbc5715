#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/data/iterator.h"
#include "lockstep/data/static_spec.h"
#include "lockstep/data/transforms.h"
#include "lockstep/data/unbatched.h"

namespace lockstep::data {

/// A sequence of elements, described and not yet read: what tf.data is to TensorFlow.
///
/// ```
/// auto train = data::from_tensor_slices(std::tuple{images, labels})
///                  .shuffle(10'000)
///                  .map([](torch::Tensor image, torch::Tensor label) { return std::tuple{augment(image), label}; },
///                       {.num_threads = 8})
///                  .batch(256)
///                  .prefetch(2);
/// for (auto& [images, labels] : train) ...                 // one epoch; the next loop has another order
/// ```
///
/// A cheap handle that never changes: every method returns another dataset. Iterators hold the state, and any number of
/// them, on any threads, may go through one dataset. For a seed the elements and their order are the same at any number
/// of threads. T is a nest (codec.h); a function that is given takes a T or, for tuples, its parts.
template <class T>
class Dataset {
 public:
  using value_type = T;

  explicit Dataset(NodePtr node) : node_(std::move(node)), epochs_(std::make_shared<std::atomic<uint64_t>>(0)) {}

  /// Starts going through the elements. Each call starts another epoch: what is random gets another order.
  Iterator<T> iterator() const { return iterator_of_epoch(epochs_->fetch_add(1, std::memory_order_relaxed)); }
  /// Starts an epoch of one's choice.
  Iterator<T> iterator_of_epoch(uint64_t epoch) const {
    return Iterator<T>(detail::ElementIterator(node_, Iteration{.epoch = epoch}));
  }
  InputIterator<T> begin() const { return InputIterator<T>(iterator()); }
  std::default_sentinel_t end() const { return {}; }

  /// Returns all elements of one epoch.
  std::vector<T> collect() const {
    std::vector<T> elements;
    auto each = iterator();
    while (auto element = each.next()) elements.push_back(*std::move(element));
    return elements;
  }

  /// What is known of the elements. Of what a function of `map` returns that is what two of its results have in common:
  /// the function is called for it, unless its type or `MapOptions::spec` says it, or the source is a generator.
  ElementSpec element_spec() const { return node_->spec(); }
  /// How many elements there are, as far as that is known without reading.
  Cardinality cardinality() const { return node_->cardinality(); }
  /// The program that made it: "range(10).shuffle(10).batch(4)".
  std::string str() const { return detail::describe(*node_); }

  /// Calls `fn` on each element.
  template <class F>
  auto map(F fn, MapOptions options = {}) const {
    using Result = lockstep::detail::spread_result_t<F, T>;
    return Dataset<Result>(detail::make_map(node_, detail::erase_function<T>(std::move(fn)),
                                            detail::static_spec<Result>(), std::move(options)));
  }

  /// The same for functions of this library such as `parse_example`, which need no value of each element.
  template <class Result>
  Dataset<Result> map(ElementMap<Result> fn, MapOptions options = {}) const {
    return Dataset<Result>(detail::make_map(node_, std::move(fn.fn), std::move(fn.result), std::move(options)));
  }

  /// Keeps the elements for which `keep` is true.
  template <class F>
  Dataset filter(F keep) const {
    return Dataset(detail::make_filter(node_, [keep = std::move(keep)](Element& element) mutable {
      return static_cast<bool>(lockstep::detail::call_spread(keep, detail::decode<T>(element)));
    }));
  }

  /// Calls `fn`, which returns a dataset, on each element, and gives the elements of those datasets one after the
  /// other.
  template <class F>
  auto flat_map(F fn) const {
    using Result = lockstep::detail::spread_result_t<F, T>;
    return Result(detail::make_flat_map(node_, dataset_function(std::move(fn))));
  }

  /// The same with `cycle_length` of the datasets open at a time, taking turns.
  template <class F>
  auto interleave(F fn, InterleaveOptions options = {}) const {
    using Result = lockstep::detail::spread_result_t<F, T>;
    return Result(detail::make_interleave(node_, dataset_function(std::move(fn)), options));
  }

  /// Keeps `buffer_size` elements and gives one of them at random, again and again: with at least as many as there are
  /// elements every order is equally likely.
  Dataset shuffle(int64_t buffer_size, ShuffleOptions options = {}) const {
    return Dataset(detail::make_shuffle(node_, buffer_size, options));
  }

  /// Goes through the dataset without end.
  Dataset repeat() const { return repeat(-1); }
  /// Goes through the dataset `count` times; -1: without end.
  Dataset repeat(int64_t count) const { return Dataset(detail::make_repeat(node_, count)); }

  /// Joins each `size` elements into one, with one more dimension in front. Elements must have one shape.
  auto batch(int64_t size, BatchOptions options = {}) const {
    return batched(detail::make_batch(node_, size, options));
  }

  /// The same for tensors of different sizes, which are padded at their ends.
  auto padded_batch(int64_t size, PaddedBatchOptions options = {}) const {
    return batched(detail::make_padded_batch(node_, size, std::move(options)));
  }

  /// Puts elements of similar length together: those below boundaries[i] make batches of batch_sizes[i], padded; the
  /// last of the batch_sizes is for those beyond.
  template <class F>
  auto bucket_by_length(F length, std::vector<int64_t> boundaries, std::vector<int64_t> batch_sizes,
                        BucketOptions options = {}) const {
    auto erased = [length = std::move(length)](Element& element) mutable {
      return static_cast<int64_t>(lockstep::detail::call_spread(length, detail::decode<T>(element)));
    };
    return batched(detail::make_bucket_by_length(node_, std::move(erased), std::move(boundaries),
                                                 std::move(batch_sizes), options));
  }

  /// Takes batches apart again, into their rows.
  auto unbatch() const { return Dataset<unbatched_t<T>>(detail::make_unbatch(node_)); }

  /// Cuts the rows of batches into batches of another size, whatever they were before.
  Dataset rebatch(int64_t size, BatchOptions options = {}) const { return rebatch(std::vector{size}, options); }
  /// The same with sizes that take turns.
  Dataset rebatch(std::vector<int64_t> sizes, BatchOptions options = {}) const {
    return Dataset(detail::make_rebatch(node_, std::move(sizes), options));
  }

  /// Keeps every `num_shards`-th element, from number `index` on.
  Dataset shard(int64_t num_shards, int64_t index) const {
    return Dataset(detail::make_shard(node_, num_shards, index));
  }
  /// `shard(kShardHint)`: `distribute_dataset` puts the shard of its worker here (AutoShardPolicy::Hint).
  Dataset shard(int64_t hint) const { return shard(hint, hint); }

  /// Keeps the first `count` elements; -1: all of them.
  Dataset take(int64_t count) const { return Dataset(detail::make_take(node_, count)); }
  /// Leaves out the first `count` elements; -1: all of them.
  Dataset skip(int64_t count) const { return Dataset(detail::make_skip(node_, count)); }

  /// Goes on with the elements of `other`.
  Dataset concatenate(const Dataset& other) const { return Dataset(detail::make_concatenate(node_, other.node_)); }

  /// Keeps all elements in memory as they are first met; later epochs read them there.
  Dataset cache() const { return Dataset(detail::make_cache(node_, "")); }
  /// Keeps them in a file, which later runs of the program read, too.
  Dataset cache(std::string file) const { return Dataset(detail::make_cache(node_, std::move(file))); }

  /// Makes up to `buffer_size` elements ahead of time, on a thread of its own.
  Dataset prefetch(int64_t buffer_size) const { return Dataset(detail::make_prefetch(node_, buffer_size)); }

  /// Puts the number of each element beside it.
  auto enumerate(int64_t start = 0) const {
    return Dataset<std::pair<int64_t, T>>(detail::make_enumerate(node_, start));
  }

  /// Sets what the dataset asks of those who use it.
  Dataset with_options(DataOptions options) const { return Dataset(detail::make_options(node_, options)); }

  /// Says how many elements there are where it cannot be known; a wrong number is an error when it shows.
  Dataset assert_cardinality(int64_t count) const { return Dataset(detail::make_assert_cardinality(node_, count)); }

  /// Inside: what distribution works on.
  const NodePtr& node() const { return node_; }

 private:
  template <class F>
  static detail::DatasetFunction dataset_function(F fn) {
    return [fn = std::move(fn)](Element& element) mutable {
      return lockstep::detail::call_spread(fn, detail::decode<T>(element)).node();
    };
  }

  static auto batched(NodePtr node) {
    static_assert(
        kCanBatch<T>,
        "a batch of a struct is the same struct, so all its fields must be tensors: make numbers and texts of it "
        "tensors, or map to a tuple");
    return Dataset<batched_t<T>>(std::move(node));
  }

  NodePtr node_;
  /// How often it was gone through; shared by copies.
  std::shared_ptr<std::atomic<uint64_t>> epochs_;
};

/// Goes through several datasets side by side, as long as all of them have elements.
template <class... T>
Dataset<std::tuple<T...>> zip(const Dataset<T>&... datasets) {
  return Dataset<std::tuple<T...>>(detail::make_zip({datasets.node()...}));
}

/// Takes each element from one of the datasets, chosen at random with chances proportional to `weights` (empty: equal).
template <class T>
Dataset<T> sample_from(const std::vector<Dataset<T>>& datasets, std::vector<double> weights = {},
                       SampleOptions options = {}) {
  std::vector<NodePtr> nodes;
  for (const auto& dataset : datasets) nodes.push_back(dataset.node());
  return Dataset<T>(detail::make_sample_from(std::move(nodes), std::move(weights), options));
}

}  // namespace lockstep::data
