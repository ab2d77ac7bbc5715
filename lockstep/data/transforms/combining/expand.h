#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "lockstep/data/function_random.h"
#include "lockstep/data/transforms.h"

namespace lockstep::data::detail {

class ExpandInput;

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
  /// The elements of the input in one iteration, and their datasets.
  ExpandInput expand_input(const Iteration& iteration) const;

 private:
  DatasetFunction fn_;
  mutable std::once_flag probed_;
  mutable NodePtr first_;
};

/// An element of the input, and the nested iteration over its dataset.
struct ExpandElement {
  Element element;
  Iteration iteration;
  int64_t ordinal = 0;
};

/// A user's function that makes datasets, with its random numbers. Threads use copies.
class MakeDataset {
 public:
  MakeDataset(DatasetFunction fn, FunctionRandom random) : fn_(std::move(fn)), random_(std::move(random)) {}
  NodePtr operator()(ExpandElement& element);

 private:
  DatasetFunction fn_;
  FunctionRandom random_;
};

/// Makes the datasets of the input's elements one after the other.
class ExpandInput {
 public:
  /// `depth` is that of the node.
  ExpandInput(std::unique_ptr<NodeIterator> input, MakeDataset make, const Iteration& iteration, uint64_t depth)
      : input_(std::move(input)), make_(std::move(make)), iteration_(iteration), depth_(depth) {}

  /// Stores the next element of the input in `element`, or returns false at the end.
  bool next(ExpandElement& element);
  /// Returns the next dataset and stores its iteration in `iteration`, or returns null at the end.
  NodePtr next_dataset(Iteration& iteration);
  const MakeDataset& make() const { return make_; }

 private:
  std::unique_ptr<NodeIterator> input_;
  MakeDataset make_;
  Iteration iteration_;
  uint64_t depth_;
  int64_t ordinal_ = 0;
  ExpandElement element_;
};

}  // namespace lockstep::data::detail
