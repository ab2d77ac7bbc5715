#pragma once

#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lockstep/data/element/bus_errors.h"
#include "lockstep/data/element/static_spec.h"
#include "lockstep/data/iterator.h"
#include "lockstep/data/transforms.h"

namespace lockstep::data {

template <class T>
class Dataset;

namespace detail {
/// Internal: the graph behind a dataset.
template <class T>
NodePtr node_of(const Dataset<T>& dataset) {
  return dataset.node_;
}
}  // namespace detail

/// A description of a sequence of elements, as tf.data.Dataset is in TensorFlow. Nothing is read before iteration.
///
/// ```
/// auto train = data::from_tensor_slices(std::tuple{images, labels})
///                  .shuffle(10'000)
///                  .map([](torch::Tensor image, torch::Tensor label) { return std::tuple{augment(image), label}; },
///                       {.num_threads = 8})
///                  .batch(256)
///                  .prefetch(2);
/// for (auto& [images, labels] : train) ...                 // one epoch; the next loop shuffles anew
/// ```
///
/// A cheap immutable handle: every method returns another dataset. Iterators hold the state; any number of them, on any
/// threads, may iterate over one dataset. With a fixed seed, elements and their order do not depend on the number of
/// threads. T is a nest (element/nest_codec.h); a user's function takes a T or, for tuples, its parts. It may write to
/// the tensors that it is given: sources, caches and other elements do not change.
template <class T>
class Dataset {
 public:
  /// The type of an element.
  using value_type = T;

  /// The dataset of a node (`node.h`); programs begin with a source, such as `from_tensor_slices`.
  explicit Dataset(NodePtr node) : node_(std::move(node)) {}

  /// Starts an iteration. Each call starts another epoch, with another random order. Epochs are those of the sources: a
  /// dataset that is made anew for every epoch, `for (auto& batch : train.batch(32))`, has another order each time,
  /// too.
  Iterator<T> iterator() const { return iterator_of_epoch(node_->epochs()->start()); }
  /// Starts an iteration of the given epoch.
  Iterator<T> iterator_of_epoch(uint64_t epoch) const {
    return Iterator<T>(detail::ElementIterator(node_, Iteration{.epoch = epoch}));
  }
  /// For range-based loops. Each loop is an epoch: a shuffled dataset has another order in the next one.
  InputIterator<T> begin() const { return InputIterator<T>(iterator()); }
  std::default_sentinel_t end() const { return {}; }

  /// Returns all elements of one epoch.
  std::vector<T> collect() const {
    std::vector<T> elements;
    auto each = iterator();
    while (auto element = each.next()) elements.push_back(*std::move(element));
    return elements;
  }

  /// Structure, dtypes and shapes of the elements, as far as known. For a function of `map` it is what two of its
  /// results have in common: the function is called twice, unless its type or `MapOptions::spec` determines the result,
  /// or the source is a generator.
  ElementSpec element_spec() const { return node_->spec(); }
  /// The number of elements, as far as it is known without reading.
  Cardinality cardinality() const { return node_->cardinality(); }
  /// The calls that made the dataset: "range(10).shuffle(10).batch(4)".
  std::string str() const { return detail::describe(*node_); }

  /// Calls `fn` on each element.
  template <class F>
  auto map(F fn, MapOptions options = {}) const {
    using Result = lockstep::detail::unpacked_result_t<F, T>;
    return Dataset<Result>(detail::make_map(node_, detail::erase_function<T>(std::move(fn), options.read_only),
                                            detail::static_spec<Result>(), std::move(options)));
  }

  /// Applies a function of this library, such as `parse_example`, which works on elements without converting them to T.
  template <class Result>
  Dataset<Result> map(ElementMap<Result> fn, MapOptions options = {}) const {
    return Dataset<Result>(detail::make_map(node_, std::move(fn.fn), std::move(fn.result), std::move(options)));
  }

  /// Keeps the elements for which `keep` is true. Random numbers that it draws belong to the element, as in `map`.
  template <class F>
  Dataset filter(F keep) const {
    return Dataset(detail::make_filter(node_, [keep = std::move(keep)](Element& element) mutable {
      const bool kept = static_cast<bool>(lockstep::detail::call_unpacked(keep, detail::decode_copy<T>(element)));
      if (detail::any_bus_error()) {
        for (const Leaf& leaf : element.leaves) detail::check_read(leaf);
      }
      return kept;
    }));
  }

  /// Calls `fn`, which returns a dataset, on each element, and concatenates those datasets.
  template <class F>
  auto flat_map(F fn) const {
    using Result = lockstep::detail::unpacked_result_t<F, T>;
    return Result(detail::make_flat_map(node_, dataset_function(std::move(fn))));
  }

  /// Calls `fn`, which returns a dataset, on each element, and alternates between `cycle_length` of those datasets.
  template <class F>
  auto interleave(F fn, InterleaveOptions options = {}) const {
    using Result = lockstep::detail::unpacked_result_t<F, T>;
    return Result(detail::make_interleave(node_, dataset_function(std::move(fn)), options));
  }

  /// Fills a buffer of `buffer_size` elements and returns them in random order, refilling it. With a buffer as large as
  /// the dataset every order is equally likely.
  Dataset shuffle(int64_t buffer_size, ShuffleOptions options = {}) const {
    return Dataset(detail::make_shuffle(node_, buffer_size, options));
  }

  /// Repeats the dataset without end.
  Dataset repeat() const { return repeat(-1); }
  /// Repeats the dataset `count` times; -1: without end.
  Dataset repeat(int64_t count) const { return Dataset(detail::make_repeat(node_, count)); }

  /// Stacks every `size` elements along a new first dimension. Elements must have the same shape.
  auto batch(int64_t size, BatchOptions options = {}) const {
    return batched(detail::make_batch(node_, size, options));
  }

  /// Stacks every `size` elements along a new first dimension, after padding tensors at their ends to a common shape.
  auto padded_batch(int64_t size, PaddedBatchOptions options = {}) const {
    return batched(detail::make_padded_batch(node_, size, std::move(options)));
  }

  /// Batches elements of similar length together: elements below boundaries[i] make padded batches of batch_sizes[i];
  /// the last batch size is for all longer ones.
  template <class F>
  auto bucket_by_length(F length, std::vector<int64_t> boundaries, std::vector<int64_t> batch_sizes,
                        BucketOptions options = {}) const {
    auto erased = [length = std::move(length)](Element& element) mutable {
      const auto result =
          static_cast<int64_t>(lockstep::detail::call_unpacked(length, detail::decode_copy<T>(element)));
      if (detail::any_bus_error()) {
        for (const Leaf& leaf : element.leaves) detail::check_read(leaf);
      }
      return result;
    };
    return batched(detail::make_bucket_by_length(node_, std::move(erased), std::move(boundaries),
                                                 std::move(batch_sizes), options));
  }

  /// Splits batches into their rows.
  auto unbatch() const { return Dataset<unbatched_t<T>>(detail::make_unbatch(node_)); }

  /// Regroups the rows of batches into batches of `size`.
  Dataset rebatch(int64_t size, BatchOptions options = {}) const { return rebatch(std::vector{size}, options); }
  /// Regroups the rows of batches into batches of these sizes, in a cycle.
  Dataset rebatch(std::vector<int64_t> sizes, BatchOptions options = {}) const {
    return Dataset(detail::make_rebatch(node_, std::move(sizes), options));
  }

  /// Selects every `num_shards`-th element, starting with element `index`.
  Dataset shard(int64_t num_shards, int64_t index) const {
    return Dataset(detail::make_shard(node_, num_shards, index));
  }
  /// Marks where `distribute_dataset` inserts the shard of its worker (AutoShardPolicy::Hint). TensorFlow's
  /// `shard(SHARD_HINT, SHARD_HINT)`, here `shard(kShardHint, kShardHint)`, means the same.
  Dataset shard_hint() const { return shard(kShardHint, kShardHint); }

  /// Selects the first `count` elements; -1: all of them.
  Dataset take(int64_t count) const { return Dataset(detail::make_take(node_, count)); }
  /// Drops the first `count` elements; -1: all of them.
  Dataset skip(int64_t count) const { return Dataset(detail::make_skip(node_, count)); }

  /// Appends the elements of `other`.
  Dataset concatenate(const Dataset& other) const { return Dataset(detail::make_concatenate(node_, other.node_)); }

  /// Stores all elements in memory during the first epoch; later epochs read them from there. They are stored once for
  /// all caches of this dataset, as long as it or one of them exists.
  Dataset cache() const { return Dataset(detail::make_cache(node_, "")); }
  /// Stores all elements in a file, which later epochs and later runs of the program read.
  Dataset cache(std::string file) const { return Dataset(detail::make_cache(node_, std::move(file))); }

  /// Prefetches up to `buffer_size` elements on a thread of its own.
  Dataset prefetch(int64_t buffer_size) const { return Dataset(detail::make_prefetch(node_, buffer_size)); }

  /// Pairs each element with its number, from `start` on.
  auto enumerate(int64_t start = 0) const {
    return Dataset<std::pair<int64_t, T>>(detail::make_enumerate(node_, start));
  }

  /// Leaves out elements whose reader or function throws, and goes on with the next one. Errors that say nothing about
  /// an element are thrown: ContextError, CollectiveError, InternalError, and those of memory.
  ///
  /// ```
  /// auto records = data::tfrecords(files).ignore_errors({.limit = 100});   // more damage than that is an error
  /// ```
  Dataset ignore_errors(IgnoreErrorsOptions options = {}) const {
    return Dataset(detail::make_ignore_errors(node_, std::move(options)));
  }

  /// Sets options that `distribute_dataset` reads.
  Dataset with_options(DataOptions options) const { return Dataset(detail::make_options(node_, options)); }

  /// States the number of elements where it is unknown. Throws during iteration where the number is wrong.
  Dataset assert_cardinality(int64_t count) const { return Dataset(detail::make_assert_cardinality(node_, count)); }

 private:
  friend NodePtr detail::node_of<T>(const Dataset& dataset);

  template <class F>
  static detail::DatasetFunction dataset_function(F fn) {
    return [fn = std::move(fn)](Element& element) mutable {
      const detail::MappedReads reads(element);
      NodePtr node = detail::node_of(lockstep::detail::call_unpacked(fn, detail::decode_own<T>(element)));
      reads.check("flat_map, interleave");
      return node;
    };
  }

  static auto batched(NodePtr node) {
    static_assert(
        kCanBatch<T>,
        "a batch of a struct is the same struct, so all its fields must be tensors: convert its numbers and texts to "
        "tensors, or map to a tuple");
    return Dataset<batched_t<T>>(std::move(node));
  }

  NodePtr node_;
};

/// Combines elements of several datasets into tuples, up to the end of the shortest.
template <class... T>
Dataset<std::tuple<T...>> zip(const Dataset<T>&... datasets) {
  return Dataset<std::tuple<T...>>(detail::make_zip({detail::node_of(datasets)...}));
}

/// Takes each element from a dataset chosen at random, with probabilities proportional to `weights` (empty: equal).
template <class T>
Dataset<T> sample_from(const std::vector<Dataset<T>>& datasets, std::vector<double> weights = {},
                       SampleOptions options = {}) {
  std::vector<NodePtr> nodes;
  for (const auto& dataset : datasets) nodes.push_back(detail::node_of(dataset));
  return Dataset<T>(detail::make_sample_from(std::move(nodes), std::move(weights), options));
}

}  // namespace lockstep::data
