#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "lockstep/data/transforms.h"

namespace lockstep::data::detail {

/// Inside: what flat_map and interleave have in common: a dataset is made from each element of the input.
///
/// What is known of the elements is what the dataset of the first element knows of its own. The function is called for
/// it once, unless the input cannot be gone through twice.
class LOCKSTEP_API ExpandNode : public UnaryNode {
 public:
  Role role() const override { return Role::Expand; }
  ElementSpec spec() const override;
  Cardinality cardinality() const override { return Cardinality::unknown(); }
  std::optional<int64_t> batch_size() const override;
  bool is_replayable() const override;

  /// The dataset of the first element, or null: the input is empty or cannot be gone through twice, or the function
  /// throws (which shows again where its elements are asked for).
  NodePtr first_inner() const;

 protected:
  ExpandNode(NodePtr input, DatasetFunction fn) : UnaryNode(std::move(input)), fn_(std::move(fn)) {}

  const DatasetFunction& fn() const { return fn_; }

 private:
  DatasetFunction fn_;
  mutable std::once_flag probed_;
  mutable NodePtr first_;
};

/// Makes the datasets of the input's elements one after the other. Each is an iteration of its own.
class ExpandInput {
 public:
  ExpandInput(std::unique_ptr<NodeIterator> input, DatasetFunction fn, const Iteration& iteration)
      : input_(std::move(input)), fn_(std::move(fn)), iteration_(iteration) {}

  /// Puts the next element of the input into `element`, and which iteration its dataset's is into `iteration`.
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
