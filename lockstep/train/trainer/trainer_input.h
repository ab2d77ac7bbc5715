#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "lockstep/api.h"
#include "lockstep/strategy/input/distributed_dataset.h"
#include "lockstep/strategy/input/input_options.h"
#include "lockstep/strategy/strategy.h"
#include "lockstep/train/trainer/batch.h"

namespace lockstep {

namespace detail {

class StateObject;

/// Internal: one pass over distributed batches.
class BatchIterator {
 public:
  virtual ~BatchIterator() = default;
  /// Returns one batch for each local replica; an empty list at the end.
  virtual std::vector<Batch> next() = 0;
};

/// Internal: gives replicas without rows a row of another one, or of the batches before (`Batch::spare`).
class LOCKSTEP_API SpareRows {
 public:
  void fill(std::vector<Batch>& batches);

 private:
  /// The last batch with rows of this worker.
  std::vector<at::Tensor> last_;
};

/// Internal: a distributed dataset of any element type.
class DistributedBatches {
 public:
  virtual ~DistributedBatches() = default;
  /// Starts an epoch, or continues a restored one.
  virtual std::unique_ptr<BatchIterator> iterator() = 0;
  virtual data::Cardinality cardinality() const = 0;
  virtual std::shared_ptr<StateObject> state_object() const = 0;
};

template <class T>
class BatchesOf final : public DistributedBatches {
 public:
  BatchesOf(Strategy strategy, DistributedDataset<T> dataset)
      : strategy_(std::move(strategy)), dataset_(std::move(dataset)) {}

  std::unique_ptr<BatchIterator> iterator() override {
    return std::make_unique<Iterator>(strategy_, dataset_.iterator());
  }
  data::Cardinality cardinality() const override { return dataset_.cardinality(); }
  std::shared_ptr<StateObject> state_object() const override { return dataset_.state_object(); }

 private:
  class Iterator final : public BatchIterator {
   public:
    Iterator(Strategy strategy, DistributedIterator<T> elements)
        : strategy_(std::move(strategy)), elements_(std::move(elements)) {}

    std::vector<Batch> next() override {
      std::vector<Batch> batches;
      const auto step = elements_.get_next_as_optional();
      if (!step) return batches;
      for (const T& element : strategy_.local_results(*step)) batches.push_back(to_batch(element));
      spare_rows_.fill(batches);
      return batches;
    }

   private:
    Strategy strategy_;
    DistributedIterator<T> elements_;
    SpareRows spare_rows_;
  };

  Strategy strategy_;
  DistributedDataset<T> dataset_;
};

}  // namespace detail

/// What `Trainer` reads: a batched dataset, or one that is distributed already. Elements are (input, target), (input,
/// target, weights), an input alone for predictions, `torch::data::Example`, or `Batch`. Inputs and targets are tensors
/// or nests of them: `std::tuple{std::tuple{images, sizes}, labels}` has two inputs. Weights are one number for each
/// row.
class TrainerInput {
 public:
  /// A dataset of global batches: `fit` distributes it.
  template <class T>
  TrainerInput(const data::Dataset<T>& dataset, const InputOptions& options = {})  // NOLINT: is what it reads
      : distribute_([dataset, options](const Strategy& strategy) {
          return std::make_shared<detail::BatchesOf<T>>(strategy, strategy.distribute_dataset(dataset, options));
        }) {
    static_assert(detail::is_batch<T>(), "a Trainer reads (input, target), (input, target, weights), or inputs alone");
  }
  template <class T>
  TrainerInput(const DistributedDataset<T>& dataset)  // NOLINT: is what it reads
      : distribute_(
            [dataset](const Strategy& strategy) { return std::make_shared<detail::BatchesOf<T>>(strategy, dataset); }) {
    static_assert(detail::is_batch<T>(), "a Trainer reads (input, target), (input, target, weights), or inputs alone");
  }

  /// Internal.
  std::shared_ptr<detail::DistributedBatches> distribute(const Strategy& strategy) const {
    return distribute_(strategy);
  }

 private:
  std::function<std::shared_ptr<detail::DistributedBatches>(const Strategy&)> distribute_;
};

}  // namespace lockstep
