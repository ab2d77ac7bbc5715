#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "lockstep/data/transforms.h"

namespace lockstep::data::detail {

/// Internal: base of flat_map and interleave: a function makes a dataset from each element of the input.
///
/// The spec of elements is that of the dataset of the first element. The function is called once for it, unless the
/// input is not replayable.
class LOCKSTEP_API ExpandNode : public UnaryNode {
 public:
  Role role() const override { return Role::Expand; }
  ElementSpec spec() const override;
  Cardinality cardinality() const override { return Cardinality::unknown(); }
  std::optional<int64_t> batch_size() const override;
  bool is_replayable() const override;

  /// The dataset of the first element, or null: the input is empty or not replayable, or the function throws (iteration
  /// throws again).
  NodePtr first_inner() const;

 protected:
  ExpandNode(NodePtr input, DatasetFunction fn) : UnaryNode(std::move(input)), fn_(std::move(fn)) {}

  const DatasetFunction& fn() const { return fn_; }

 private:
  DatasetFunction fn_;
  mutable std::once_flag probed_;
  mutable NodePtr first_;
};

/// Makes the datasets of the input's elements one after the other. Each has its own nested iteration.
class ExpandInput {
 public:
  ExpandInput(std::unique_ptr<NodeIterator> input, DatasetFunction fn, const Iteration& iteration)
      : input_(std::move(input)), fn_(std::move(fn)), iteration_(iteration) {}

  /// Stores the next element of the input in `element`, and the iteration of its dataset in `iteration`.
  bool next(Element& element, Iteration& iteration);
  /// Returns the next dataset, or null at the end.
  NodePtr next_dataset(Iteration& iteration);
  const DatasetFunction& fn() const { return fn_; }

 private:
  std::unique_ptr<NodeIterator> input_;
  DatasetFunction fn_;
  Iteration iteration_;
  uint64_t ordinal_ = 0;
  Element element_;
};

}  // namespace lockstep::data::detail
